//! The address of the Firefox Profiler's page.

/// Where it is.
pub const FRONT_END: &str = "https://profiler.firefox.com";

/// The page that loads the profile at `url` and shows it. Nothing is uploaded.
#[must_use]
pub fn url(url: &str) -> String {
    let encoded = url.bytes().map(|byte| match byte {
        b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    });
    format!("{FRONT_END}/from-url/{}", encoded.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_of_the_profile_is_one_part_of_the_pages() {
        assert_eq!(
            url("http://127.0.0.1:8080/a-b/profile.json?seconds=1&x=é"),
            "https://profiler.firefox.com/from-url/http%3A%2F%2F127.0.0.1%3A8080%2Fa-b%2Fprofile.json%3Fseconds%3D1%26x%3D%C3%A9"
        );
    }
}
