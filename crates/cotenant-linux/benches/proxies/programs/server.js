// Answers with some work on text.
const answer = JSON.stringify(Array.from({ length: 200 }, (_, i) => ({ id: i, name: `name ${i}` })));
require("http")
  .createServer((request, response) => {
    const text = JSON.stringify(JSON.parse(answer));
    response.setHeader("Content-Length", Buffer.byteLength(text));
    response.end(text);
  })
  .listen(47210, "127.0.0.1");
