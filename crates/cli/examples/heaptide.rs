//! The command without Python, for work on reports: `cargo run -p heaptide-cli --example heaptide -- stats FILE`.

use heaptide_cli::{Outcome, main as heaptide};

fn main() {
    match heaptide(std::env::args_os()) {
        Outcome::Exit(code) => std::process::exit(code),
        Outcome::Run(plan) => println!("{plan:#?}"),
        Outcome::Lines(plan) => println!("{plan:#?}"),
        Outcome::Live(plan) => println!("{plan:#?}"),
        Outcome::Serve(plan) => println!("{plan:#?}"),
        Outcome::Worker(plan) => println!("{plan:#?}"),
        Outcome::Doctor => println!("doctor"),
    }
}
