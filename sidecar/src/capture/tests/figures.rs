//! Figures of a runtime that are not there, or do not fit each other.

use super::{Forged, VARIABLES};
use crate::capture::figures::figures;
use crate::capture::variables::Variables;

/// Check that figures of which one part is not there are none.
#[test]
fn figures_that_cannot_be_read_are_none() {
    let memory = Forged::default().with(0x300, &[4]).with(0x500, &[100; 40]).with(0x1_0000, &[7; 515]);
    assert_eq!(figures(&memory, &VARIABLES).unwrap().map(|figures| figures.collections), Some(7));
    // What is free and in use is more than there is, each time that it is looked at.
    let torn = Forged::default()
        .with(0x300, &[4])
        .with(0x500, &[&[100; 36][..], &[900], &[100; 3]].concat())
        .with(0x1_0000, &[7; 515]);
    assert_eq!(figures(&torn, &VARIABLES).unwrap(), None);
    // More is mapped, or in use, than there are addresses.
    for at in [19, 39] {
        let mut words = [100; 40];
        (words[39], words[at]) = (1 << 47, 1 << 60);
        let forged = Forged::default().with(0x300, &[4]).with(0x500, &words).with(0x1_0000, &[7; 515]);
        assert_eq!(figures(&forged, &VARIABLES).unwrap(), None, "{at}");
    }
    let nowhere = Some(0x9_0000);
    for variables in [
        Variables { pacer: nowhere, ..VARIABLES },
        Variables { collections: nowhere, ..VARIABLES },
        Variables { processors: nowhere, ..VARIABLES },
        Variables { processors: None, ..VARIABLES },
    ] {
        assert_eq!(figures(&memory, &variables).unwrap(), None);
    }
}
