//! Handmade files of `torch.save`: archives of uncompressed entries, with their pickles.

/// Returns a zip archive without checksums.
pub(crate) fn archive(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut all, mut directory) = (Vec::new(), Vec::new());
    for (name, bytes) in entries {
        let (at, len, name_len) = (all.len() as u32, bytes.len() as u32, name.len() as u16);
        let common =
            [&[20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0, 0, 0, 0, 0][..], &len.to_le_bytes(), &len.to_le_bytes()]
                .concat();
        let common = [&common[..], &name_len.to_le_bytes(), &[0; 2]].concat();
        all.extend([b"PK\x03\x04", &common[..], name.as_bytes(), bytes].concat());
        let place = [&[0; 10][..], &at.to_le_bytes()].concat();
        directory.extend([b"PK\x01\x02\x14\x00", &common[..], &place, name.as_bytes()].concat());
    }
    let (count, at, len) = (entries.len() as u16, all.len() as u32, directory.len() as u32);
    let counts = [count.to_le_bytes(), count.to_le_bytes()].concat();
    [&all[..], &directory, b"PK\x05\x06\0\0\0\0", &counts, &len.to_le_bytes(), &at.to_le_bytes(), &[0; 2]]
        .concat()
}

/// The values of a pickle.
#[derive(Clone)]
pub(crate) enum Said {
    Text(&'static str),
    Int(u8),
    Float,
    None,
    Tuple(Vec<Said>),
    Dict(Vec<(Said, Said)>),
    /// A tensor of four bytes, of the storage `0`.
    Tensor,
}

impl Said {
    fn put(&self, out: &mut Vec<u8>) {
        let text = |out: &mut Vec<u8>, text: &str| {
            out.push(b'X');
            out.extend((text.len() as u32).to_le_bytes());
            out.extend(text.as_bytes());
        };
        match self {
            Self::Text(said) => text(out, said),
            Self::Int(value) => out.extend([b'K', *value]),
            Self::Float => out.extend([&b"G"[..], &1.5_f64.to_be_bytes()].concat()),
            Self::None => out.push(b'N'),
            Self::Tuple(parts) => {
                out.push(b'(');
                for part in parts {
                    part.put(out);
                }
                out.push(b't');
            }
            Self::Dict(entries) => {
                out.extend(b"}(");
                for (key, value) in entries {
                    key.put(out);
                    value.put(out);
                }
                out.push(b'u');
            }
            Self::Tensor => {
                out.extend(b"ctorch._utils\n_rebuild_tensor_v2\n((");
                text(out, "storage");
                out.extend(b"ctorch\nByteStorage\n");
                text(out, "0");
                text(out, "cpu");
                out.extend(b"K\x04tQK\x00K\x04\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtR");
            }
        }
    }
}

/// Returns the file that `torch.save` would write for a value.
pub(crate) fn saved(said: &Said) -> Vec<u8> {
    let mut pickle = b"\x80\x02".to_vec();
    said.put(&mut pickle);
    pickle.push(b'.');
    archive(&[("archive/data.pkl", &pickle), ("archive/data/0", &[1, 2, 3, 4])])
}
