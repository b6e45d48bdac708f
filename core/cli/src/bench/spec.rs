//! What to run, as a file of Faasm's microbenchmark runner says it: `guest,export-or-arguments,runs,input`, a line for each.

use csv::{Position, ReaderBuilder, StringRecord};

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// Where it stands, from 1.
    pub(super) line: u64,
    /// The path of the guest.
    pub(super) guest: String,
    /// The name of an exported function and its parameters, or the guest's arguments.
    pub(super) call: String,
    /// How often to run it.
    pub(super) runs: u32,
    /// What it reads from standard input.
    pub(super) input: String,
}

/// Reads all rows. Lines that are empty or begin with `#` are none.
///
/// # Errors
/// What is wrong, with the number of each line.
pub(super) fn read(spec: &[u8]) -> Result<Vec<Row>, Vec<(u64, String)>> {
    let mut reader = ReaderBuilder::new();
    reader.has_headers(false).flexible(true).comment(Some(b'#'));
    let (mut rows, mut errors) = (Vec::new(), Vec::new());
    for record in reader.from_reader(spec).into_records() {
        match record {
            Ok(record) => {
                // Of nothing but blanks.
                if record.len() == 1 && record[0].trim().is_empty() {
                    continue;
                }
                let line = record.position().map_or(0, |position| line_of(spec, position));
                match row(line, &record) {
                    Ok(row) => rows.push(row),
                    Err(error) => errors.push((line, error)),
                }
            }
            Err(error) => {
                let line = error.position().map_or(0, |position| line_of(spec, position));
                let text = match error.kind() {
                    csv::ErrorKind::Utf8 { .. } => "it is not UTF-8".to_owned(),
                    _ => error.to_string(),
                };
                errors.push((line, text));
            }
        }
    }
    if errors.is_empty() { Ok(rows) } else { Err(errors) }
}

/// The number of the line that a record stands in: its position is that from which it was looked for.
fn line_of(spec: &[u8], position: &Position) -> u64 {
    let from = spec.get(position.byte() as usize..).unwrap_or_default();
    let is_none = |line: &&[u8]| line.trim_ascii().is_empty() || line.starts_with(b"#");
    position.line() + from.split(|byte| *byte == b'\n').take_while(is_none).count() as u64
}

fn row(line: u64, record: &StringRecord) -> Result<Row, String> {
    let fields: Vec<&str> = record.iter().collect();
    // The input is what it is, blanks included.
    let (&[guest, call, runs], input) = (match &fields[..] {
        [first @ .., input] if fields.len() == 4 => (first, *input),
        all => (all, ""),
    }) else {
        return Err(format!("{} fields (expected 3 or 4: guest,export-or-arguments,runs,input)", fields.len()));
    };
    let [guest, call, runs] = [guest, call, runs].map(str::trim);
    if guest.is_empty() {
        return Err("it names no guest".to_owned());
    }
    let times = runs.parse().ok().filter(|runs| *runs > 0);
    let runs = times.ok_or_else(|| format!("{runs:?} runs (expected 1 to {})", u32::MAX))?;
    Ok(Row { line, guest: guest.to_owned(), call: call.to_owned(), runs, input: input.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_row() {
        let spec = "a.wasm,fib 30,10\n\n# of Go\n  b.wasm , -n 3 , 1 , some input \nc.wasm,,2,\"x,\"\"y\n\"\n  \r\n\r\nd.wasm,,1\n";
        let row = |line, guest: &str, call: &str, runs, input: &str| Row {
            line,
            guest: guest.to_owned(),
            call: call.to_owned(),
            runs,
            input: input.to_owned(),
        };
        let expected = [
            row(1, "a.wasm", "fib 30", 10, ""),
            row(4, "b.wasm", "-n 3", 1, " some input "),
            row(5, "c.wasm", "", 2, "x,\"y\n"),
            row(9, "d.wasm", "", 1, ""),
        ];
        assert_eq!(read(spec.as_bytes()), Ok(expected.to_vec()));
        assert_eq!(read(b"# nothing\n\n"), Ok(Vec::new()));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let spec = b"a.wasm,,1\n\n#\na.wasm,1\na,b,1,i,x\na,,0\na,,-1\na,,many\n,x,1\n\n\xff,x,1\n";
        let errors = read(spec).unwrap_err();
        let lines: Vec<u64> = errors.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [4, 5, 6, 7, 8, 9, 11], "{errors:?}");
        assert!(errors[0].1.starts_with("2 fields (expected 3 or 4"), "{errors:?}");
        assert!(errors[2].1.starts_with("\"0\" runs (expected 1 to "), "{errors:?}");
        assert_eq!(errors[5].1, "it names no guest");
        assert_eq!(errors[6].1, "it is not UTF-8");
    }
}
