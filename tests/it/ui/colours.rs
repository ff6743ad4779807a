//! Colours of the pages: texts are readable in both schemes.

use std::collections::BTreeMap;

/// Backgrounds with the texts that stand on them, by the names of the variables in the style.
const PAIRS: [(&str, &[&str]); 9] = [
    ("back", &["text", "muted", "accent", "good", "warning", "bad"]),
    ("panel", &["text", "muted", "accent", "good", "warning", "bad"]),
    ("good-back", &["good"]),
    ("warning-back", &["warning"]),
    ("bad-back", &["bad"]),
    ("neutral-back", &["neutral"]),
    ("accent-back", &["accent"]),
    ("accent", &["accent-text"]),
    // Borders of fields, below: 3 suffices.
    ("control", &[]),
];

type Colours = BTreeMap<String, [u8; 3]>;

/// Reads the variables of a block, such as `--text: #1a1f29;`.
fn colours(block: &str) -> Colours {
    let variable = |part: &str| {
        let (name, value) = part.split_once(':')?;
        let number = u32::from_str_radix(value.trim().strip_prefix('#')?, 16).ok()?;
        let [_, red, green, blue] = number.to_be_bytes();
        Some((name.trim().trim_start_matches('-').to_owned(), [red, green, blue]))
    };
    block.split(';').filter_map(variable).collect()
}

/// Relative luminance (WCAG 2.1).
fn luminance(colour: [u8; 3]) -> f64 {
    let linear = |part: u8| {
        let part = f64::from(part) / 255.0;
        if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * linear(colour[0]) + 0.7152 * linear(colour[1]) + 0.0722 * linear(colour[2])
}

fn contrast(one: [u8; 3], other: [u8; 3]) -> f64 {
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

#[test]
fn texts_have_the_contrast_of_wcag_aa_in_both_schemes() {
    let style = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/ui/assets/style.css")).unwrap();
    let mut blocks = style.split(":root {").skip(1).map(|rest| colours(rest.split('}').next().unwrap()));
    let (light, dark) = (blocks.next().unwrap(), blocks.next().unwrap());
    let names = |colours: &Colours| colours.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&light), names(&dark));
    let mut checked = Vec::new();
    for (scheme, colours) in [("light", light), ("dark", dark)] {
        for (back, texts) in PAIRS {
            for text in texts {
                let contrast = contrast(colours[*text], colours[back]);
                assert!(contrast >= 4.5, "{scheme}: {text} on {back} has {contrast:.2}");
            }
            checked.extend(texts.iter().copied().chain([back]));
        }
        for field in ["back", "panel"] {
            assert!(contrast(colours["control"], colours[field]) >= 3.0, "{scheme}: borders of fields on {field}");
        }
        // A line separates, and nothing depends on it.
        let unchecked: Vec<&String> =
            colours.keys().filter(|name| !checked.contains(&name.as_str()) && *name != "line").collect();
        assert!(unchecked.is_empty(), "{unchecked:?} is on no list");
    }
    assert!((contrast([0, 0, 0], [255, 255, 255]) - 21.0).abs() < 0.01);
}
