//! A proxy that breaks connections: between an exporter and the receiver, on a port of its own.
//!
//! In: connections of whoever sends, and which fault each is to meet. Out: the same bytes to the receiver and back, as far as the
//! fault lets them. Real sockets; a thread and a runtime of its own, so that tests with and without a runtime can use it.

mod pass;
mod wire;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use crate::Result;

/// What a connection meets with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    Pass,
    /// It takes what is sent, hands nothing on and answers nothing.
    Swallow,
    /// Nobody takes it for so long.
    SlowAccept(Duration),
    /// It is reset where the body of the first request begins.
    ResetBeforeBody,
    /// It is reset after so many bytes of the first body.
    ResetInBody(usize),
    /// It is reset when the first answer comes, of which nothing arrives.
    ResetAfterBody,
    /// It is reset after so many bytes of the first answer.
    CutAnswer(usize),
    /// Everything comes byte by byte, in both directions.
    Dribble,
}

/// What who connects finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    Open,
    /// Nobody listens.
    Closed,
    /// The kernel lets nobody in and says nothing.
    Walled,
}

/// A running proxy; dropping it closes its port and its connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    script: Arc<Mutex<Script>>,
    /// `None` ends it.
    doors: Option<UnboundedSender<(Door, mpsc::Sender<()>)>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Script {
    next: VecDeque<Fault>,
    connections: usize,
}

impl Proxy {
    /// Starts one that hands everything on to `receiver`.
    ///
    /// # Errors
    /// When there is no port or no thread to be had.
    pub fn start(receiver: SocketAddr) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let entered = runtime.enter();
        // Keeps the port while nobody listens at it.
        let port = socket((Ipv4Addr::LOCALHOST, 0).into())?;
        let address = port.local_addr()?;
        drop(entered);
        let script = Arc::<Mutex<Script>>::default();
        let (doors, orders) = unbounded_channel();
        let shared = Arc::clone(&script);
        let thread = std::thread::Builder::new().name("proxy".into()).spawn(move || {
            let _port = port;
            // What cannot be listened to is seen by who waits for the door.
            let _outcome = runtime.block_on(keep_doors(address, receiver, shared, orders));
        })?;
        let proxy = Self { address, script, doors: Some(doors), thread: Some(thread) };
        proxy.open()?;
        Ok(proxy)
    }

    /// Where it listens.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Lets the next connections meet with these faults, one each; those after them pass.
    pub fn break_next(&self, faults: impl IntoIterator<Item = Fault>) {
        lock(&self.script).next.extend(faults);
    }

    /// How many connections were made.
    #[must_use]
    pub fn connections(&self) -> usize {
        lock(&self.script).connections
    }

    /// Lets connections in.
    ///
    /// # Errors
    /// When it cannot listen.
    pub fn open(&self) -> Result<()> {
        self.set(Door::Open)
    }

    /// Breaks all connections and refuses further ones, as a host does whose server has ended.
    ///
    /// # Errors
    /// When it has failed before.
    pub fn close(&self) -> Result<()> {
        self.set(Door::Closed)
    }

    /// Breaks all connections, and lets who connects wait without any answer, as a route does that leads nowhere.
    ///
    /// # Errors
    /// When it cannot listen.
    pub fn wall(&self) -> Result<()> {
        self.set(Door::Walled)
    }

    /// Returns when it is so.
    fn set(&self, door: Door) -> Result<()> {
        let (done, is_done) = mpsc::channel();
        let doors = self.doors.as_ref().ok_or("the proxy has ended")?;
        doors.send((door, done))?;
        Ok(is_done.recv()?)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.doors.take());
        let _joined = self.thread.take().map(JoinHandle::join);
    }
}

/// Does as it is ordered, until nobody is left who orders.
async fn keep_doors(
    address: SocketAddr,
    receiver: SocketAddr,
    script: Arc<Mutex<Script>>,
    mut orders: UnboundedReceiver<(Door, mpsc::Sender<()>)>,
) -> Result<()> {
    let mut order = orders.recv().await;
    while let Some((door, done)) = order {
        let open = if door == Door::Open { Some(socket(address)?.listen(64)?) } else { None };
        // One fills the queue of a listener without room, which nobody empties: the kernel drops what asks for more.
        let wall = if door == Door::Walled {
            Some((socket(address)?.listen(0)?, TcpStream::connect(address).await?))
        } else {
            None
        };
        let _told = done.send(());
        // Ends with its connections when there is another order.
        tokio::select! {
            next = orders.recv() => order = next,
            never = accept(open, receiver, &script) => match never? {},
        }
        drop(wall);
    }
    Ok(())
}

/// Takes connections and hands them on, for ever.
async fn accept(listener: Option<TcpListener>, receiver: SocketAddr, script: &Mutex<Script>) -> Result<Infallible> {
    let Some(listener) = listener else { return std::future::pending().await };
    let mut connections = JoinSet::new();
    loop {
        let (client, _) = listener.accept().await?;
        let fault = {
            let mut script = lock(script);
            script.connections += 1;
            script.next.pop_front().unwrap_or(Fault::Pass)
        };
        connections.spawn(async move {
            // How a connection ends is the business of its two sides.
            let _outcome = pass::on(client, receiver, fault).await;
        });
    }
}

/// A socket at `address` that shares its port with the other sockets of the proxy.
fn socket(address: SocketAddr) -> Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    Ok(socket)
}

fn lock(script: &Mutex<Script>) -> MutexGuard<'_, Script> {
    script.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
