//! The futures of asynchronous calls.

use crate::answer::Found;
use crate::error::Error;
use crate::given::{self, Finish};
use crate::item::Item;
use crate::slot::Slot;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// The answer to an asynchronous call, as a future of any runtime, or to be waited for.
///
/// The call runs whether or not its reply is awaited. A dropped reply does not stop it.
///
/// ```
/// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
/// # let address = server.addresses()[0].to_string();
/// use situ_client::{AsyncClient, Error, Options};
///
/// async fn visits(client: &AsyncClient) -> Result<u64, Error> {
///     client.add("visits", "0", ()).await?;
///     Ok(client.increment("visits", 1).await?.unwrap_or(0))
/// }
///
/// let client = AsyncClient::open(&Options::new([address]))?;
/// let both = (client.set("a", "1", ()), client.set("b", "2", ()));
/// both.0.wait()?;
/// both.1.wait()?;
/// # Ok::<(), situ_client::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the error of a call is in its reply"]
pub struct Reply<T> {
    /// The error of a call that did not begin is there until it is asked for.
    call: Result<Arc<Slot>, Option<Error>>,
    finish: Finish<T>,
}

/// Takes the error of a call that did not begin.
fn refused(error: &mut Option<Error>) -> Error {
    error.take().expect("a reply is not polled after its result")
}

impl<T> Reply<T> {
    pub(crate) fn new(call: Result<Arc<Slot>, Error>, finish: Finish<T>) -> Reply<T> {
        Reply { call: call.map_err(Some), finish }
    }

    /// Waits for the answer, until the deadline of the call at the latest.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```
    /// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
    /// # use situ_client::{AsyncClient, Options};
    /// let client = AsyncClient::open(&Options::new([server.addresses()[0].to_string()]))?;
    /// assert_eq!(client.get("key").wait()?, None);
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn wait(self) -> Result<T, Error> {
        let slot = self.call.map_err(|mut error| refused(&mut error))?;
        let (server, given) = slot.wait();
        given::finish(&server, given?, self.finish)
    }
}

impl<T> Future for Reply<T> {
    type Output = Result<T, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T, Error>> {
        let reply = self.get_mut();
        match &mut reply.call {
            Ok(slot) => {
                let (server, given) = ready!(slot.poll(context.waker()));
                Poll::Ready(given.and_then(|given| given::finish(&server, given, reply.finish)))
            }
            Err(error) => Poll::Ready(Err(refused(error))),
        }
    }
}

/// The answer to an asynchronous call with many keys: their items, in the order of the keys.
///
/// ```
/// # let server = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/doc_server.rs"));
/// # use situ_client::{AsyncClient, Options};
/// let client = AsyncClient::open(&Options::new([server.addresses()[0].to_string()]))?;
/// client.set("b", "2", ()).wait()?;
/// let items = client.get_many(&["a", "b"]).wait()?;
/// assert!(items[0].is_none() && items[1].is_some());
/// # Ok::<(), situ_client::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the error of a call is in its reply"]
pub struct ReplyMany {
    /// Replies to parts of the call, each with the positions of its keys.
    parts: Vec<(Reply<Vec<Found>>, Vec<usize>)>,
    items: Vec<Option<Item>>,
}

impl ReplyMany {
    pub(crate) fn new(parts: Vec<(Reply<Vec<Found>>, Vec<usize>)>, keys: usize) -> ReplyMany {
        ReplyMany { parts, items: vec![None; keys] }
    }

    /// Waits for all answers, until the deadline of the call at the latest.
    ///
    /// # Errors
    /// See [`Error`]. The error of one server is the error of the call.
    ///
    /// ```
    /// # use situ_client::{AsyncClient, Options};
    /// // Port 1 has no server.
    /// let client = AsyncClient::open(&Options::new(["127.0.0.1:1"]))?;
    /// assert!(client.get_many(&["a", "b"]).wait().is_err());
    /// # Ok::<(), situ_client::Error>(())
    /// ```
    pub fn wait(mut self) -> Result<Vec<Option<Item>>, Error> {
        for (reply, keys) in std::mem::take(&mut self.parts) {
            self.place(reply.wait()?, &keys);
        }
        Ok(self.items)
    }

    fn place(&mut self, found: Vec<Found>, keys: &[usize]) {
        for found in found {
            // The parser counts only keys of the command.
            self.items[keys[found.position]] = Some(found.item);
        }
    }
}

impl Future for ReplyMany {
    type Output = Result<Vec<Option<Item>>, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let many = self.get_mut();
        let mut waiting = Vec::new();
        for (mut reply, keys) in std::mem::take(&mut many.parts) {
            match Pin::new(&mut reply).poll(context) {
                Poll::Pending => waiting.push((reply, keys)),
                Poll::Ready(Ok(found)) => many.place(found, &keys),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            }
        }
        many.parts = waiting;
        if many.parts.is_empty() { Poll::Ready(Ok(std::mem::take(&mut many.items))) } else { Poll::Pending }
    }
}
