// Answers with a hash of some work.
package main

import (
	"crypto/sha256"
	"fmt"
	"net/http"
)

func main() {
	http.HandleFunc("/file", func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.Sum256([]byte(r.URL.Path))
		for i := 0; i < 200; i++ {
			sum = sha256.Sum256(sum[:])
		}
		fmt.Fprintf(w, "%x\n", sum)
	})
	panic(http.ListenAndServe("127.0.0.1:47210", nil))
}
