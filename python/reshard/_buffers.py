"""Arrays of any library as the bytes that they are, without a copy, and new arrays like them.

    lend(array)     a view of the array's memory as bytes, the name of its element type (None for plain bytes), its shape
    make(...)       new arrays like those that were given: NumPy's, PyTorch's, else memoryviews

NumPy refuses buffers and DLPack of bfloat16, and PyTorch refuses ml_dtypes' arrays; both view such arrays as uint8.
Nothing here imports NumPy or PyTorch: whoever has such an array has imported it.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

# What `memoryview.format` says, and `memoryview.cast` takes, of our element types.
_FORMATS = {
    "?": "bool",
    "b": "i8",
    "B": "u8",
    "h": "i16",
    "H": "u16",
    "i": "i32",
    "I": "u32",
    "q": "i64",
    "Q": "u64",
    "l": "i64" if ctypes.sizeof(ctypes.c_long) == 8 else "i32",
    "L": "u64" if ctypes.sizeof(ctypes.c_long) == 8 else "u32",
    "e": "f16",
    "f": "f32",
    "d": "f64",
    "Zf": "c64",
}

_CODES = {name: code for code, name in _FORMATS.items() if code not in "lL" and len(code) == 1}

# Names of ml_dtypes and PyTorch for those of ours that neither NumPy nor memoryview has.
_OTHERS = {
    "bf16": "bfloat16",
    "f8_e4m3": "float8_e4m3fn",
    "f8_e5m2": "float8_e5m2",
    "f8_e8m0": "float8_e8m0fnu",
    "f8_e4m3fnuz": "float8_e4m3fnuz",
    "f8_e5m2fnuz": "float8_e5m2fnuz",
    "c64": "complex64",
    "bool": "bool",
}

# DLPack's kinds of devices whose memory is the host's.
_HOST_DEVICES = (1, 3, 11)


class Refused(Exception):
    """A sentence on why an array is not taken, with the kind of the refusal."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def _not_contiguous(strides: object) -> Refused:
    return Refused("strides", f"it is not C-contiguous, its strides are {strides}: give a contiguous copy")


def _on_device(device: object) -> Refused:
    return Refused("device", f"it is on the device {device}, and only memory of the host is read: copy it there first")


def _of_address(address: int, size: int) -> Any:
    # A view has strides, which arrays of ctypes leave out. It does not hold the memory: whoever lends the tensor does.
    return memoryview((ctypes.c_uint8 * size).from_address(address)) if size else memoryview(bytearray())


def _of_view(array: Any) -> tuple[Any, str | None, tuple[int, ...]]:
    try:
        view = memoryview(array)
        if not view.c_contiguous:
            raise _not_contiguous(view.strides)
        shape = tuple(view.shape or ())
        name = _FORMATS.get(view.format.lstrip("@=<" if sys.byteorder == "little" else "@=>"))
        if name is None:
            raise Refused("dtype", f"its items have the format {view.format!r}, which is no element type")
        # A view of nothing cannot be cast.
        return (view if view.nbytes == 0 else view.cast("B")), name, shape
    except (ValueError, BufferError) as error:
        raise Refused("closed", f"its memory is not there: {error}") from None


def _of_numpy(array: Any) -> tuple[Any, str | None, tuple[int, ...]]:
    if not array.flags.c_contiguous:
        raise _not_contiguous(array.strides)
    if not array.dtype.isnative:
        raise Refused("dtype", f"its items have the byte order {array.dtype.byteorder!r}: give them in that of this machine")
    if array.dtype.hasobject:
        raise Refused("dtype", f"its items are objects of Python, {array.dtype}")
    return array.reshape(-1).view("uint8"), array.dtype.name, tuple(array.shape)


def _of_torch(tensor: Any) -> tuple[Any, str | None, tuple[int, ...]]:
    if tensor.device.type != "cpu":
        raise _on_device(tensor.device)
    if str(tensor.layout) != "torch.strided" or tensor.is_conj() or tensor.is_neg():
        raise Refused("strides", "it is sparse or a view that conjugates or negates: give it resolved and dense")
    if not tensor.is_contiguous():
        raise _not_contiguous(tuple(tensor.stride()))
    size = tensor.numel() * tensor.element_size()
    return _of_address(tensor.data_ptr(), size), str(tensor.dtype), tuple(tensor.shape)


def _is(array: Any, module: str, name: str) -> bool:
    known = sys.modules.get(module)
    return known is not None and isinstance(array, getattr(known, name))


def lend(array: Any) -> tuple[Any, str | None, tuple[int, ...]]:
    """A view of an array's memory as bytes, the name of its element type, and its shape."""
    if _is(array, "numpy", "ndarray"):
        return _of_numpy(array)
    if _is(array, "torch", "Tensor"):
        return _of_torch(array)
    try:
        return _of_view(array)
    except TypeError:
        pass
    device = getattr(array, "__dlpack_device__", None)
    if device is not None:
        kind, number = device()
        if kind not in _HOST_DEVICES:
            raise _on_device(f"{int(kind)}:{number}")
    numpy = sys.modules.get("numpy")
    if device is not None and numpy is not None:
        # An array of an element type that DLPack cannot say is one of NumPy's by another way.
        made = numpy.asarray(array) if hasattr(array, "__array__") else numpy.from_dlpack(array)
        return _of_numpy(made)
    interface = getattr(array, "__array_interface__", None)
    if interface is not None and numpy is not None:
        return _of_numpy(numpy.asarray(array))
    if hasattr(array, "__cuda_array_interface__"):
        raise _on_device("cuda")
    name = type(array).__qualname__
    raise Refused("buffer", f"{name} has no memory to read: give a buffer, a NumPy array or a tensor on the CPU")


def _family(array: Any) -> str:
    if _is(array, "torch", "Tensor"):
        return "torch"
    if "numpy" in sys.modules and (_is(array, "numpy", "ndarray") or _is(array, "numpy", "generic") or hasattr(array, "__dlpack__")):
        return "numpy"
    return "view"


def make(like: Any, raw: bool, dtype: str, item_bytes: int, shapes: list[tuple[int, ...]]) -> list[Any]:
    """A new array like `like` for each shape; where bytes were given for elements of another type, bytes."""
    family = _family(like)
    if raw:
        shapes = [(*shape, item_bytes) for shape in shapes]
        dtype, item_bytes = "u8", 1
    if family == "torch":
        torch = sys.modules["torch"]
        kind = getattr(torch, _framework_name(dtype), None)
        if kind is not None:
            return [torch.empty(shape, dtype=kind) for shape in shapes]
    if family == "numpy":
        numpy = sys.modules["numpy"]
        kind = _numpy_dtype(numpy, dtype)
        if kind is not None:
            return [numpy.empty(shape, dtype=kind) for shape in shapes]
    return [_view(dtype, item_bytes, shape) for shape in shapes]


def _framework_name(dtype: str) -> str:
    known = _OTHERS.get(dtype)
    if known is not None:
        return known
    kinds = {"i": "int", "u": "uint", "f": "float"}
    return kinds[dtype[0]] + dtype[1:] if dtype[0] in kinds and dtype[1:].isdigit() else dtype


def _numpy_dtype(numpy: Any, dtype: str) -> Any:
    name = _framework_name(dtype)
    try:
        return numpy.dtype(name)
    except TypeError:
        extended = sys.modules.get("ml_dtypes")
        return None if extended is None else getattr(extended, name, None)


def _view(dtype: str, item_bytes: int, shape: tuple[int, ...]) -> Any:
    numel = 1
    for size in shape:
        numel *= size
    view: Any = memoryview(bytearray(numel * item_bytes))
    code = _CODES.get(dtype)
    if code is None or numel == 0:
        return view if code is None else view.cast(code)
    return view.cast(code, list(shape))
