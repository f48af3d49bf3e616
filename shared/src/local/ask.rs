//! One command to a server and its answer as text: enough of the protocol for starting servers, with no client.

use std::io::{BufRead as _, BufReader, Error, ErrorKind, Read, Result, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A server that starts or hangs is asked again by whoever waits for it.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Asks over a socket. An array is answered as its items, one a line.
pub(super) fn at_socket(socket: &Path, command: &str) -> Result<String> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    ask(stream, command)
}

/// Asks over a loopback port.
pub(super) fn at_port(port: u16, command: &str) -> Result<String> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    ask(stream, command)
}

fn ask(mut stream: impl Read + Write, command: &str) -> Result<String> {
    stream.write_all(format!("{command}\r\n").as_bytes())?;
    let mut lines = Vec::new();
    read(&mut BufReader::new(stream), &mut lines)?;
    Ok(lines.join("\n"))
}

fn read(stream: &mut BufReader<impl Read>, lines: &mut Vec<String>) -> Result<()> {
    let mut head = String::new();
    stream.read_line(&mut head)?;
    let head = head.trim_end();
    let odd = || Error::new(ErrorKind::InvalidData, format!("answered {head:?}"));
    let (kind, rest) = head.split_at_checked(1).ok_or_else(odd)?;
    match kind {
        "+" | ":" => lines.push(rest.into()),
        "$" => {
            let len: i64 = rest.parse().map_err(|_| odd())?;
            if let Ok(len) = usize::try_from(len) {
                let mut bytes = vec![0; len + 2];
                stream.read_exact(&mut bytes)?;
                bytes.truncate(len);
                lines.push(String::from_utf8_lossy(&bytes).into_owned());
            }
        }
        "*" => {
            let count: i64 = rest.parse().map_err(|_| odd())?;
            for _ in 0..count {
                read(stream, lines)?;
            }
        }
        _ => return Err(odd()),
    }
    Ok(())
}

/// Loopback ports that nobody listens on now. Somebody may before they are used.
pub(super) fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut held = Vec::new();
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}
