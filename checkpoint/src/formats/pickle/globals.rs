//! The names that are known; any other name is the class of an opaque object.
//!
//! Nothing is looked up or called, so an unknown name is harmless: it is an error only where a known one is needed.

use safetensors::Dtype;

/// The function, class or dtype to which a name refers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Global {
    /// A dict that preserves its order.
    OrderedDict,
    /// A value that holds no tensor: sets, devices, bytes of old protocols, layouts, paths.
    Plain,
    /// `torch.Size`: a tuple of extents.
    Size,
    /// A dtype, such as `torch.bfloat16`.
    Dtype(Element),
    /// A storage with elements of a fixed dtype.
    Storage(Element),
    /// A storage of bytes.
    UntypedStorage,
    /// A tensor over a storage of its type.
    RebuildTensor,
    /// A tensor over a storage of bytes.
    RebuildTensorOfType,
    /// A tensor that is a parameter.
    RebuildParameter,
    /// A parameter with attributes.
    RebuildParameterWithState,
    /// A tensor of a subclass, by one of the other functions: `(function, class, its arguments, state)`.
    RebuildFromType,
    /// A tensor of a subclass without a storage; a DTensor stores its shard in the state.
    RebuildWrapperSubclass,
    /// The class of DTensors.
    DTensor,
    /// The mesh, the placements and the shape of a DTensor.
    DTensorSpec,
    /// The shape, strides and dtype of a DTensor.
    TensorMeta,
    /// The mesh of a DTensor.
    DeviceMesh,
    /// The layout of a device mesh.
    MeshLayout,
    /// The extents and strides of one dim of a device mesh.
    FlatLayout,
    /// The order of the mesh dims that split one tensor dim.
    ShardOrderEntry,
    /// A placement: one part for each rank.
    Shard,
    /// A placement: a split into parts of parts.
    StridedShard,
    /// A placement: everything on each rank.
    Replicate,
    /// A placement: a partial value.
    Partial,
    /// The contents of a `.metadata` file.
    Metadata,
    /// A tensor in a `.metadata` file.
    TensorStorageMetadata,
    /// An entry that is not a tensor.
    BytesStorageMetadata,
    /// A chunk of a tensor.
    ChunkStorageMetadata,
    /// The dtype of a tensor, and more.
    TensorProperties,
    /// The identity of a chunk: tensor and offset.
    MetadataIndex,
    /// The location of a chunk.
    StorageInfo,
    /// The writer of the checkpoint.
    StorageMeta,
}

/// A dtype of PyTorch: one that safetensors has too, or the name of one that it lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    Known(Dtype),
    Lacking(&'static str),
}

const PLACEMENTS: &str = "torch.distributed.tensor.placement_types";
const METADATA: &str = "torch.distributed.checkpoint.metadata";
const OLD_METADATA: &str = "torch.distributed._shard.sharded_tensor.metadata";

/// Returns the function, class or dtype of a name; `None` if the list lacks it.
pub(super) fn find(module: &str, name: &str) -> Option<Global> {
    Some(match (module, name) {
        ("collections", "OrderedDict") => Global::OrderedDict,
        ("builtins" | "__builtin__", "set" | "frozenset" | "complex" | "bytearray")
        | ("_codecs", "encode")
        | ("torch", "device")
        | ("torch.serialization", "_get_layout")
        | (METADATA, "_MEM_FORMAT_ENCODING")
        | (OLD_METADATA, "MEM_FORMAT_ENCODING")
        | (
            "pathlib" | "pathlib._local",
            "Path" | "PosixPath" | "PurePosixPath" | "WindowsPath" | "PureWindowsPath",
        ) => Global::Plain,
        ("torch", "Size") => Global::Size,
        ("torch.storage" | "torch", "UntypedStorage") => Global::UntypedStorage,
        ("torch._utils", "_rebuild_tensor_v2") => Global::RebuildTensor,
        ("torch._utils", "_rebuild_tensor_v3") => Global::RebuildTensorOfType,
        ("torch._utils", "_rebuild_parameter") => Global::RebuildParameter,
        ("torch._utils", "_rebuild_parameter_with_state") => Global::RebuildParameterWithState,
        ("torch._tensor", "_rebuild_from_type_v2") => Global::RebuildFromType,
        ("torch._utils", "_rebuild_wrapper_subclass") => Global::RebuildWrapperSubclass,
        ("torch.distributed.tensor", "DTensor") => Global::DTensor,
        ("torch.distributed.tensor._dtensor_spec", "DTensorSpec") => Global::DTensorSpec,
        ("torch.distributed.tensor._dtensor_spec", "TensorMeta") => Global::TensorMeta,
        ("torch.distributed.tensor._dtensor_spec", "ShardOrderEntry") => Global::ShardOrderEntry,
        ("torch.distributed.device_mesh", "DeviceMesh") => Global::DeviceMesh,
        ("torch.distributed._mesh_layout", "_MeshLayout") => Global::MeshLayout,
        ("torch.distributed._mesh_layout", "_FlatLayout") => Global::FlatLayout,
        (PLACEMENTS, "Shard") => Global::Shard,
        (PLACEMENTS, "_StridedShard") => Global::StridedShard,
        (PLACEMENTS, "Replicate") => Global::Replicate,
        (PLACEMENTS, "Partial") => Global::Partial,
        (METADATA, "Metadata") => Global::Metadata,
        (METADATA, "TensorStorageMetadata") => Global::TensorStorageMetadata,
        (METADATA, "BytesStorageMetadata") => Global::BytesStorageMetadata,
        (METADATA, "ChunkStorageMetadata") => Global::ChunkStorageMetadata,
        (METADATA | OLD_METADATA, "TensorProperties") => Global::TensorProperties,
        (METADATA, "MetadataIndex") => Global::MetadataIndex,
        (METADATA, "StorageMeta") => Global::StorageMeta,
        ("torch.distributed.checkpoint.filesystem", "_StorageInfo") => Global::StorageInfo,
        ("torch", name) => return of_torch(name),
        (_, _) => return None,
    })
}

/// Returns the dtypes, and the storages that are named after them.
fn of_torch(name: &str) -> Option<Global> {
    let element = |known: &[(&str, Element)]| known.iter().find(|(said, _)| *said == name).map(|one| one.1);
    element(&DTYPES).map(Global::Dtype).or_else(|| element(&STORAGES).map(Global::Storage))
}

/// Returns PyTorch's names of a dtype: of its storage, if there is one, and of the dtype.
pub(crate) fn torch_types(element: Element) -> Option<(Option<&'static str>, &'static str)> {
    let name =
        |known: &[(&'static str, Element)]| known.iter().find(|(_, one)| *one == element).map(|one| one.0);
    Some((name(&STORAGES), name(&DTYPES)?))
}

const DTYPES: [(&str, Element); 29] = [
    ("bool", Element::Known(Dtype::BOOL)),
    ("uint8", Element::Known(Dtype::U8)),
    ("int8", Element::Known(Dtype::I8)),
    ("uint16", Element::Known(Dtype::U16)),
    ("int16", Element::Known(Dtype::I16)),
    ("uint32", Element::Known(Dtype::U32)),
    ("int32", Element::Known(Dtype::I32)),
    ("uint64", Element::Known(Dtype::U64)),
    ("int64", Element::Known(Dtype::I64)),
    ("float16", Element::Known(Dtype::F16)),
    ("bfloat16", Element::Known(Dtype::BF16)),
    ("float32", Element::Known(Dtype::F32)),
    ("float64", Element::Known(Dtype::F64)),
    ("complex64", Element::Known(Dtype::C64)),
    ("float8_e4m3fn", Element::Known(Dtype::F8_E4M3)),
    ("float8_e5m2", Element::Known(Dtype::F8_E5M2)),
    ("float8_e4m3fnuz", Element::Known(Dtype::F8_E4M3FNUZ)),
    ("float8_e5m2fnuz", Element::Known(Dtype::F8_E5M2FNUZ)),
    ("float8_e8m0fnu", Element::Known(Dtype::F8_E8M0)),
    ("float4_e2m1fn_x2", Element::Lacking("float4_e2m1fn_x2")),
    ("complex32", Element::Lacking("complex32")),
    ("complex128", Element::Lacking("complex128")),
    ("qint8", Element::Lacking("qint8")),
    ("quint8", Element::Lacking("quint8")),
    ("qint32", Element::Lacking("qint32")),
    ("quint4x2", Element::Lacking("quint4x2")),
    ("quint2x4", Element::Lacking("quint2x4")),
    ("bits8", Element::Lacking("bits8")),
    ("bits16", Element::Lacking("bits16")),
];

const STORAGES: [(&str, Element); 17] = [
    ("BoolStorage", Element::Known(Dtype::BOOL)),
    ("ByteStorage", Element::Known(Dtype::U8)),
    ("CharStorage", Element::Known(Dtype::I8)),
    ("ShortStorage", Element::Known(Dtype::I16)),
    ("IntStorage", Element::Known(Dtype::I32)),
    ("LongStorage", Element::Known(Dtype::I64)),
    ("HalfStorage", Element::Known(Dtype::F16)),
    ("BFloat16Storage", Element::Known(Dtype::BF16)),
    ("FloatStorage", Element::Known(Dtype::F32)),
    ("DoubleStorage", Element::Known(Dtype::F64)),
    ("ComplexFloatStorage", Element::Known(Dtype::C64)),
    ("ComplexDoubleStorage", Element::Lacking("complex128")),
    ("QInt8Storage", Element::Lacking("qint8")),
    ("QUInt8Storage", Element::Lacking("quint8")),
    ("QInt32Storage", Element::Lacking("qint32")),
    ("QUInt4x2Storage", Element::Lacking("quint4x2")),
    ("QUInt2x4Storage", Element::Lacking("quint2x4")),
];
