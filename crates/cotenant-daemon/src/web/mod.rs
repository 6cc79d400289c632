//! The daemon's HTTP server: metrics, whether it is healthy, and the page. A thread of its own, which the loop never
//! waits for.
//!
//! Every client that reaches the address may read, and none may change anything. The cost of clients is bounded:
//! simultaneous connections, the size of a request, the time of both, and each answer is made at most once a second.

pub(crate) mod guard;

use crate::control::Shared;
use crate::metrics::{Format, render};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use cotenant_linux::worker;
use cotenant_status::history::SPANS;
use cotenant_status::page::{ASSETS, Now, Scene};
use cotenant_status::picture::Picture;
use cotenant_status::status::{Listen, Status};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{sleep, timeout};

/// Limit of connections: a further one ends the oldest, so that idle ones exclude no client.
const AT_ONCE: usize = 32;

/// Time for a request to come; and for all of a connection, which is one request and one answer.
const REQUEST: Duration = Duration::from_secs(2);
const CONNECTION: Duration = Duration::from_secs(10);

/// Bytes of a request.
const HEAD: usize = 8 << 10;

/// Greatest age of a page.
const FRESH: Duration = Duration::from_secs(1);

/// Time between two tries to listen at an address that is in use.
const AGAIN: Duration = Duration::from_secs(1);

/// The server, as the loop sees it.
#[derive(Default)]
pub(super) struct Web {
    /// Sends the address to its thread; `None` before its first use.
    wanted: Option<watch::Sender<Option<SocketAddr>>>,
    state: Arc<Mutex<Option<Listen>>>,
}

impl Web {
    /// Serves at this address from now on, and nowhere else. [`Web::state`] reports success.
    pub fn serve_at(&mut self, listen: Option<SocketAddr>, shared: &Arc<Shared>) {
        if let Some(wanted) = &self.wanted {
            wanted.send_if_modified(|now| std::mem::replace(now, listen) != listen);
        } else if let Some(at) = listen {
            match self.begin(at, shared) {
                Ok(wanted) => self.wanted = Some(wanted),
                Err(why) => tell(&self.state, Some(failed(at, &why))),
            }
        }
    }

    fn begin(&self, at: SocketAddr, shared: &Arc<Shared>) -> io::Result<watch::Sender<Option<SocketAddr>>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let (wanted, told) = watch::channel(Some(at));
        let (router, state) = (router(shared.clone()), self.state.clone());
        let run = move || runtime.block_on(serve(told.clone(), &router, &state));
        worker::spawn("web", 1 << 20, run)?;
        Ok(wanted)
    }

    /// Where it serves, or why not; `None` if not configured.
    pub fn state(&self) -> Option<Listen> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn tell(state: &Mutex<Option<Listen>>, now: Option<Listen>) {
    *state.lock().unwrap_or_else(PoisonError::into_inner) = now;
}

/// Why the address cannot be listened at.
fn failed(at: SocketAddr, why: &io::Error) -> Listen {
    Listen { address: at.to_string(), error: Some(why.to_string()) }
}

/// Listens at the wanted address.
async fn serve(mut wanted: watch::Receiver<Option<SocketAddr>>, router: &Router, state: &Mutex<Option<Listen>>) {
    loop {
        let at = *wanted.borrow_and_update();
        let changed = match at {
            None => {
                tell(state, None);
                wanted.changed().await
            }
            Some(at) => match TcpListener::bind(at).await {
                Ok(listener) => {
                    let address = listener.local_addr().unwrap_or(at).to_string();
                    tell(state, Some(Listen { address, error: None }));
                    let accepting = tokio::spawn(accept(listener, guard::guarded(router.clone(), at)));
                    let changed = loop {
                        match timeout(AGAIN, wanted.changed()).await {
                            Ok(changed) => break changed,
                            Err(_) if accepting.is_finished() => break Ok(()), // it has failed: start over
                            Err(_) => {}
                        }
                    };
                    accepting.abort();
                    // Its address is free now.
                    if let Err(why) = accepting.await
                        && let Ok(panic) = why.try_into_panic()
                    {
                        worker::report("web", &*panic);
                    }
                    changed
                }
                Err(why) => {
                    tell(state, Some(failed(at, &why)));
                    timeout(AGAIN, wanted.changed()).await.unwrap_or(Ok(()))
                }
            },
        };
        if changed.is_err() {
            return; // the daemon ends
        }
    }
}

async fn accept(listener: TcpListener, router: Router) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(REQUEST)
        .max_header_size(HEAD)
        .max_buf_size(2 * HEAD)
        .keep_alive(false);
    let mut open: VecDeque<JoinHandle<()>> = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(Duration::from_millis(100)).await; // no descriptors are left
            continue;
        };
        open.retain(|connection| !connection.is_finished());
        if open.len() >= AT_ONCE {
            open.pop_front().iter().for_each(JoinHandle::abort);
        }
        let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router.clone()));
        open.push_back(tokio::spawn(async move {
            let _ = timeout(CONNECTION, connection).await; // the client has gone, or is too slow
        }));
        yield_now().await; // waiting clients are answered before the next connection
    }
}

/// The pages and their handlers.
fn router(shared: Arc<Shared>) -> Router {
    let pages = Arc::new(Pages { shared, last: Mutex::default() });
    let mut router = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(health))
        .route("/now.json", get(now))
        .route("/plots/{span}", get(plots))
        .fallback(|| async { (StatusCode::NOT_FOUND, "there are /, /metrics and /healthz\n") });
    for asset in ASSETS {
        router = router.route(asset.path, get(move || async move { ([(CONTENT_TYPE, asset.kind)], asset.text) }));
    }
    router.with_state(pages)
}

/// Outputs made from each snapshot.
#[derive(Clone, Copy)]
enum Kind {
    Metrics(Format),
    Now,
    /// By its place in [`SPANS`].
    Plots(usize),
}

impl Kind {
    const COUNT: usize = 3 + SPANS.len();

    fn index(self) -> usize {
        match self {
            Self::Metrics(format) => format as usize,
            Self::Now => 2,
            Self::Plots(span) => 3 + span,
        }
    }
}

/// The answers that were made last, one of each kind.
struct Pages {
    shared: Arc<Shared>,
    last: Mutex<[Option<Page>; Kind::COUNT]>,
}

struct Page {
    of: Arc<Status>,
    made: Instant,
    text: Bytes,
}

impl Pages {
    /// Such an answer; `None` before the first round.
    fn answer(&self, kind: Kind) -> Option<Bytes> {
        let status = self.shared.status()?;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let place = &mut last[kind.index()];
        let is_fresh = |page: &&Page| Arc::ptr_eq(&page.of, &status) && page.made.elapsed() < FRESH;
        if let Some(page) = place.as_ref().filter(is_fresh) {
            return Some(page.text.clone());
        }
        let text = match kind {
            Kind::Metrics(format) => Bytes::from(render(&status, format)),
            Kind::Now => {
                let topology = self.shared.of_scene(Scene::topology)?;
                Bytes::from(serde_json::to_vec(&Now::of(Picture::of_status(&topology, &status))).ok()?)
            }
            Kind::Plots(span) => {
                let excerpt = self.shared.of_scene(|scene| scene.excerpt(span))?;
                Bytes::from(serde_json::to_vec(&excerpt.plots()).ok()?)
            }
        };
        *place = Some(Page { of: status, made: Instant::now(), text: text.clone() });
        Some(text)
    }
}

const BEGUN: (StatusCode, &str) = (StatusCode::SERVICE_UNAVAILABLE, "the daemon has just begun\n");

async fn metrics(State(pages): State<Arc<Pages>>, headers: HeaderMap) -> Response {
    let format = Format::accepted(headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()));
    match pages.answer(Kind::Metrics(format)) {
        Some(text) => ([(CONTENT_TYPE, format.content_type())], text).into_response(),
        None => BEGUN.into_response(),
    }
}

async fn now(State(pages): State<Arc<Pages>>) -> Response {
    json(pages.answer(Kind::Now))
}

/// The plots of a span of so many seconds.
async fn plots(Path(span): Path<String>, State(pages): State<Arc<Pages>>) -> Response {
    let known = SPANS.iter().position(|(length, _)| format!("{length}.json") == span);
    match known {
        Some(span) => json(pages.answer(Kind::Plots(span))),
        None => (StatusCode::NOT_FOUND, "there are plots of 600, 3600 and 21600 seconds\n").into_response(),
    }
}

fn json(text: Option<Bytes>) -> Response {
    match text {
        Some(text) => ([(CONTENT_TYPE, "application/json")], text).into_response(),
        None => BEGUN.into_response(),
    }
}

async fn health(State(pages): State<Arc<Pages>>) -> Response {
    match pages.shared.status() {
        None => BEGUN.into_response(),
        Some(status) if status.is_stale() => {
            let why = format!("the last sample is {:.0} s old\n", status.age().as_secs_f64());
            (StatusCode::SERVICE_UNAVAILABLE, why).into_response()
        }
        Some(_) => "ok\n".into_response(),
    }
}

#[cfg(test)]
mod browser;
#[cfg(test)]
mod tests;
