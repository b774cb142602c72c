// SPDX-License-Identifier: GPL-2.0-only
//! JSON as rt-app writes it: the order of an object's members is the order of events, comments and trailing commas are
//! allowed.

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// A value whose objects keep their order.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Json {
    Object(Vec<(String, Json)>),
    Array(Vec<Json>),
    Number(f64),
    Text(String),
    /// null, true, false.
    Other,
}

/// Reads a file.
pub(super) fn parse(text: &str) -> Result<Json, serde_json::Error> {
    serde_json::from_str(&plain(text))
}

/// The text with comments blanked and trailing commas taken out. Lines stay lines, so that errors name the right one.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let (mut quoted, mut comma) = (false, None);
    while let Some(c) = chars.next() {
        if quoted {
            out.push(c);
            match c {
                '\\' => out.extend(chars.next()),
                '"' => quoted = false,
                _ => {}
            }
            continue;
        }
        match (c, chars.peek()) {
            ('/', Some('*')) => {
                chars.next();
                let mut last = ' ';
                for c in chars.by_ref() {
                    if (last, c) == ('*', '/') {
                        break;
                    }
                    out.push(if c == '\n' { '\n' } else { ' ' });
                    last = c;
                }
                continue;
            }
            ('/', Some('/')) => {
                while chars.next_if(|c| *c != '\n').is_some() {}
                continue;
            }
            _ => {}
        }
        match c {
            ',' => comma = Some(out.len()),
            '}' | ']' => {
                if let Some(at) = comma.take() {
                    out.replace_range(at..=at, " ");
                }
            }
            c if c.is_whitespace() => {}
            _ => comma = None,
        }
        quoted = c == '"';
        out.push(c);
    }
    out
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Json::Object(members))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Json::Array(items))
    }

    fn visit_u64<E>(self, v: u64) -> Result<Json, E> {
        Ok(Json::Number(v as f64))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Json, E> {
        Ok(Json::Number(v as f64))
    }

    fn visit_f64<E>(self, v: f64) -> Result<Json, E> {
        Ok(Json::Number(v))
    }

    fn visit_str<E>(self, v: &str) -> Result<Json, E> {
        Ok(Json::Text(v.into()))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Json, E> {
        Ok(Json::Other)
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_comments_and_trailing_commas() {
        let text = "{ /* a, } */ \"z\" : 1, // no\n \"a\" : [ 2, \"x,}/*y*/\\\"\", ], \"b\" : null, }";
        let Json::Object(members) = parse(text).unwrap() else { panic!() };
        assert_eq!(members[0], ("z".into(), Json::Number(1.0)));
        assert_eq!(
            members[1],
            ("a".into(), Json::Array(vec![Json::Number(2.0), Json::Text("x,}/*y*/\"".into())]))
        );
        assert!(parse("{ \"a\" : /* ").is_err());
    }
}
