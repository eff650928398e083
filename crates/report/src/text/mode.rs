//! The recording mode as words.

use heaptide_capture::Mode;

use crate::units::binary_size;

pub fn mode(mode: Mode) -> String {
    let mut text = match mode.sample_bytes {
        0 => "exact".to_owned(),
        bytes => format!("sampled every {}", binary_size(bytes)),
    };
    if mode.objects {
        text.push_str(", with Python objects");
    }
    if mode.native {
        text.push_str(", with native frames");
    }
    if mode.aggregate {
        text.push_str(", bounded");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_names_all_chosen_options() {
        assert_eq!(mode(Mode::default()), "exact");
        let all = Mode {
            objects: true,
            sample_bytes: 512 << 10,
            aggregate: true,
            follow_fork: false,
            native: true,
        };
        assert_eq!(
            mode(all),
            "sampled every 512 KiB, with Python objects, with native frames, bounded"
        );
    }
}
