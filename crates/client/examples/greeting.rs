//! Stores a greeting and reads it back.

fn main() -> Result<(), keyway_client::Error> {
    let mut connection = keyway_client::Connection::open("shm:///run/keyway.shm")?;
    connection.command(&["SET", "greeting", "hello"])?;
    let mut pipeline = connection.pipeline();
    pipeline.add(&["GET", "greeting"]).add(&["STRLEN", "greeting"]);
    for reply in pipeline.run()? {
        println!("{reply:?}");
    }
    Ok(())
}
