//! A small HTTP server for what wlprof shows in a browser: profiles and pages of this machine's own user.
//!
//! axum routes and hyper speaks HTTP/1.1; what stands here is what a server needs that runs beside other work on somebody's
//! machine: an end to everything that a client can make it wait for or keep, and answers for nobody but the user.
//!
//! # Security
//! Web pages of strangers run in the same browser and can send requests here. They read no answer, since only the Firefox
//! Profiler's page is told that it may ([`for_firefox_profiler`]), and a name of theirs that they point at this machine (DNS
//! rebinding) is not answered to. Pages of this server run no scripts unless they say so themselves.

mod address;
mod firefox_profiler;
mod hosts;
mod layers;
mod server;
#[cfg(test)]
mod tests;

pub(super) use address::ListenAddress;
pub(super) use firefox_profiler::for_firefox_profiler;
pub(super) use server::Server;
