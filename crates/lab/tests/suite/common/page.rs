//! Reads pages of `--report` and pictures of `--svg`, as what they are: XML, but for what HTML does not close.

use roxmltree::{Document, Node, ParsingOptions};
use serde_json::Value;

/// The page as XML, which it is but for the `meta` and `wbr` that HTML does not close: every element closed, every name quoted.
pub fn read(page: &str, look: impl FnOnce(&Document<'_>)) {
    let mut xml = String::new();
    for (nth, part) in page.split("<meta ").enumerate() {
        if nth == 0 {
            xml.push_str(part);
        } else {
            let (meta, rest) = part.split_once('>').expect("an end");
            xml.push_str(&format!("<meta {meta}/>{rest}"));
        }
    }
    // In HTML `open` needs no value.
    let xml = xml.replace("<details open>", "<details open=\"\">").replace("<wbr>", "<wbr/>");
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    look(&Document::parse_with_options(&xml, options).unwrap_or_else(|error| panic!("{error}")));
}

/// The elements of this name.
pub fn of<'a, 'x>(within: Node<'a, 'x>, name: &'static str) -> impl Iterator<Item = Node<'a, 'x>> {
    within.descendants().filter(move |node| node.tag_name().name() == name)
}

/// It loads nothing, and says in words what its pictures show, of which there are at least so many.
pub fn stands_alone(page: &str, at_least: usize) {
    let bare = page.replace("http://www.w3.org/2000/svg", "");
    for outside in ["http:", "https:", "//", "src=", "url(", "@import", "<script", "<link", "<img", "<iframe"]
    {
        assert!(!bare.contains(outside), "{outside}");
    }
    read(page, |page| {
        let root = page.root_element();
        assert_eq!(root.attribute("lang"), Some("en"));
        assert_eq!((of(root, "h1").count(), of(root, "main").count()), (1, 1));
        assert!(of(root, "h2").count() == of(root, "section").count());
        let pictures: Vec<_> = of(root, "svg").collect();
        assert!(pictures.len() >= at_least, "{}", pictures.len());
        pictures.into_iter().for_each(speaks);
        for table in of(root, "table") {
            assert!(
                of(table, "th").all(|head| head.has_attribute("scope")) && of(table, "thead").count() == 1
            );
        }
    });
}

/// A picture says what it shows to whoever does not see it.
pub fn speaks(svg: Node<'_, '_>) {
    assert_eq!(svg.attribute("role"), Some("img"));
    let said = |name| of(svg, name).next().and_then(|node| node.text()).unwrap_or("");
    assert!(!said("title").is_empty(), "a title");
    assert!(said("desc").chars().any(|c| c.is_ascii_digit()), "{}", said("title"));
}

/// Holds every number that says where JSON has it against that; says how many there were.
pub fn pointers(page: &str, json: &Value) -> usize {
    let mut count = 0;
    read(page, |page| {
        for node in page.descendants().filter(|node| node.has_attribute("data-json")) {
            let place = node.attribute("data-json").unwrap();
            let value: Value = serde_json::from_str(node.attribute("data-value").unwrap()).expect("a number");
            assert_eq!(Some(&value), json.pointer(place), "{place}");
            // A whole number that stands there by itself is shown in full.
            let shown = node.text().unwrap_or("").replace(',', "");
            if let (Ok(shown), Some(value)) = (shown.parse::<u64>(), value.as_u64()) {
                assert_eq!(shown, value, "{place}");
            }
            count += 1;
        }
    });
    count
}
