"""Zero-copy byte views of arrays of any library, and new arrays of the same library.

    lend(array)     a view of the array's memory as bytes, the name of its element type, its shape
    dense(array)    the same array, or a contiguous copy that `lend` accepts
    numbers(array)  an array or nested sequences of numbers as an array of NumPy
    make(...)       new arrays of the caller's library: NumPy's, PyTorch's, else memoryviews
    new(...)        a new array of NumPy if it can be imported, else a memoryview

Element types have the names of NumPy, ml_dtypes and PyTorch; `src/dtype.rs` maps them to the library's.

Only this module reads memory of other libraries. It checks that the memory exists, that it is large enough,
and that it holds the value of the array. Every view keeps a reference to the owner of the memory.

NumPy rejects buffers and DLPack of bfloat16, and PyTorch rejects ml_dtypes' arrays; both view such arrays as
uint8. Nothing here imports PyTorch. NumPy is imported only to make a new array; a caller that passes an array
of NumPy has already imported it.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import struct
import sys
from collections.abc import Mapping
from typing import Any

from reshard._refusals import counted

# The `struct` format codes of each kind of element. The size completes the name: int with 8 bytes is int64.
_KINDS = {"bool": ("?",), "int": tuple("bhilq"), "uint": tuple("BHILQ"), "float": tuple("efd"), "complex": ("Zf",)}


def _name_of_format(code: str, item_bytes: int) -> str | None:
    """Returns NumPy's name for the element type of a memoryview; None for an unknown format."""
    kind = next((kind for kind, codes in _KINDS.items() if code in codes), None)
    return kind if kind in (None, "bool") else f"{kind}{8 * item_bytes}"


# The formats that `memoryview.cast` accepts, by NumPy's names.
_CODES = {_name_of_format(code, struct.calcsize(code)): code for code in "?bBhHiIqQefd"}

# DLPack's kinds of devices that use the host's memory.
_HOST_DEVICES = (1, 3, 11)


class Refused(Exception):
    """The reason why an array is rejected, with the error kind."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def _not_contiguous(strides: object) -> Refused:
    return Refused("strides", f"it is not C-contiguous, its strides are {strides}: give a contiguous copy")


def _no_memory(size: int) -> Refused:
    return Refused("memory", f"there is no memory for an array of {counted(size, 'byte')}")


def _on_device(device: object) -> Refused:
    return Refused("device", f"it is on the device {device}, and only memory of the host is read: copy it there first")


def _of_address(address: int, size: int, owner: object) -> Any:
    if not size:
        return memoryview(bytearray())
    memory = (ctypes.c_uint8 * size).from_address(address)
    # A ctypes array does not own memory at an address. The view holds the array, and the array holds the
    # owner.
    memory.owner = owner  # type: ignore[attr-defined]
    # A memoryview has strides; a ctypes array has none.
    return memoryview(memory)


class _PyBuffer(ctypes.Structure):
    """CPython's `Py_buffer`: the memory of a buffer."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


# `PyBUF_FULL_RO`: a buffer with any strides, possibly read-only.
_FULL_READ_ONLY = 0x011C


def _place(view: memoryview) -> tuple[int, int]:
    """Returns the address of the first element of a view, and the size of its elements in bytes."""
    place = _PyBuffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(place), _FULL_READ_ONLY)
    try:
        return place.buf or 0, place.len
    finally:
        ctypes.pythonapi.PyBuffer_Release(ctypes.byref(place))


def _view_of(array: Any) -> memoryview | None:
    """Returns a view of a buffer whose memory exists; None for an object without the buffer protocol."""
    try:
        view = memoryview(array)
    except TypeError:
        return None
    address, size = _place(view)
    if size and not address:
        raise _gone(size)
    return view


def _of_view(array: Any) -> tuple[Any, str | None, tuple[int, ...]] | None:
    try:
        view = _view_of(array)
        if view is None:
            return None
        if not view.c_contiguous:
            raise _not_contiguous(view.strides)
        shape = tuple(view.shape or ())
        name = _name_of_format(view.format.lstrip("@=<" if sys.byteorder == "little" else "@=>"), view.itemsize)
        if name is None:
            raise Refused("dtype", f"its buffer format {view.format!r} is not a supported element type")
        # `memoryview.cast` fails for an empty view.
        return (view if view.nbytes == 0 else view.cast("B")), name, shape
    except (ValueError, BufferError) as error:
        raise Refused("closed", f"its memory is not accessible: {error}") from None


def _addresses(array: Any) -> tuple[int, int]:
    """Returns the addresses of the first byte of an array of NumPy and of the byte after its last."""
    first = last = array.ctypes.data
    for extent, stride in zip(array.shape, array.strides, strict=True):
        first, last = first + min(0, (extent - 1) * stride), last + max(0, (extent - 1) * stride)
    return first, last + array.itemsize


# The maximum number of objects between an array and the array that owns its memory.
_MOST_BASES = 64


def _masked() -> Refused:
    return Refused("masked", "it is a masked array, and its mask would be lost: give array.filled(value), or array.data")


def _check_numpy(array: Any) -> None:
    """Rejects an array of NumPy whose memory does not exist or does not hold its value."""
    if _is(array, "numpy.ma", "MaskedArray"):
        raise _masked()
    if not array.nbytes:
        return
    if not array.ctypes.data:
        raise _gone(array.nbytes)
    (begin, end), (first, last) = _addresses(array), _owned(array)
    if begin < first or end > last:
        raise Refused("storage", f"its shape {array.shape} and strides {array.strides} reach beyond the {counted(last - first, 'byte')} that it is a view of")


def _owned(array: Any) -> tuple[int, int]:
    """Returns the first byte of the memory that an array is a view of, and the byte after its last.

    Follows the chain of `base` objects and returns the range of the last one that is known to own memory:
    `as_strided` and `frombuffer` insert helper objects into this chain.
    """
    found, owner = _addresses(array), array.base
    for _ in range(_MOST_BASES):
        if owner is None:
            break
        if _is(owner, "numpy", "ndarray"):
            found = _addresses(owner)
        elif _is(owner, "torch", "Tensor"):
            storage = owner.untyped_storage()
            return storage.data_ptr(), storage.data_ptr() + storage.nbytes()
        elif not hasattr(owner, "base"):
            try:
                view = _view_of(owner)
                if view is not None:
                    # A view of a part of a buffer keeps the whole buffer alive.
                    whole = view if view.obj is None or _is(view.obj, "numpy", "ndarray") else _view_of(view.obj)
                    address, size = _place(whole or view)
                    found = address, address + size
                    if _is(view.obj, "numpy", "ndarray"):
                        owner = view.obj
                        continue
            except (ValueError, BufferError):
                pass  # This object does not report its memory; the range that NumPy reported is used.
            break
        owner = getattr(owner, "base", None)
    return found


def _of_numpy(array: Any) -> tuple[Any, str | None, tuple[int, ...]]:
    _check_numpy(array)
    if array.dtype.hasobject:
        raise Refused("dtype", f"its elements are Python objects ({array.dtype}); give an array of numbers")
    if not array.flags.c_contiguous:
        raise _not_contiguous(array.strides)
    if not array.dtype.isnative:
        raise Refused("dtype", f"its elements have the byte order {array.dtype.byteorder!r}; convert them to that of this machine")
    if not array.dtype.itemsize:
        raise Refused("dtype", f"its elements have no bytes ({array.dtype})")
    plain = array.view(sys.modules["numpy"].ndarray)
    return plain.reshape(-1).view("uint8"), array.dtype.name, tuple(array.shape)


def _gone(size: int) -> Refused:
    return Refused("storage", f"it has no memory for its {counted(size, 'byte')}: its address is null; give it after its memory is allocated")


def _own_protocol(kind: type, plain: type, protocol: str, disabled: object) -> bool:
    """Returns True if a class overrides operations on its tensors by this protocol."""
    for each in kind.__mro__:
        if each is plain:
            return False
        if protocol in vars(each):
            return vars(each)[protocol] is not disabled
    return False


def check_tensor(tensor: Any, functions: bool = False) -> None:
    """Rejects a PyTorch tensor, on any device, whose memory does not exist or does not hold its value.

    With `functions`, classes that override functions by `__torch_function__` are accepted: the caller calls
    those functions.
    """
    torch = sys.modules["torch"]
    kind, name = type(tensor), type(tensor).__qualname__
    known = sys.modules.get("torch.distributed.tensor")
    if known is not None and isinstance(tensor, known.DTensor):
        raise Refused(
            "subclass",
            "it is a DTensor, and each rank has only a shard of it; use reshard.torch.save(path, state) or reshard.torch.load, "
            "or give tensor.to_local(), the shard of this rank, or tensor.full_tensor()",
        )
    if isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
        raise Refused("subclass", f"it is an {name}, which has no shape and no memory yet: run the module once")
    if _own_protocol(kind, torch.Tensor, "__torch_dispatch__", torch._C._disabled_torch_dispatch_impl) or not functions and _own_protocol(
        kind, torch.Tensor, "__torch_function__", torch._C._disabled_torch_function_impl
    ):
        raise Refused("subclass", f"it is a {name}, a tensor subclass whose memory may differ from its value; give a torch.Tensor with that value")
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor) or torch._is_functional_tensor(tensor):
        raise Refused("subclass", "it is a tensor within torch.func, such as vmap or grad, and has no memory: call this outside of it")
    check_memory(tensor)
    with torch._C.DisableTorchFunctionSubclass():
        if tensor.is_conj() or tensor.is_neg():
            raise Refused("strides", "it is a view that conjugates or negates: give tensor.resolve_conj().resolve_neg()")
        if tensor.numel() and not tensor.untyped_storage().data_ptr():
            raise _gone(tensor.numel() * tensor.element_size())


def check_memory(tensor: Any) -> None:
    """Rejects a PyTorch tensor of any class whose memory is smaller than its shape and strides require."""
    with sys.modules["torch"]._C.DisableTorchFunctionSubclass():
        if tensor.is_nested:
            raise Refused("strides", "it is a nested tensor: give its parts, or tensor.to_padded_tensor(value)")
        if str(tensor.layout) != "torch.strided":
            raise Refused("strides", f"it has the layout {tensor.layout}: give tensor.to_dense()")
        if tensor.is_quantized:
            raise Refused("dtype", f"it is quantized, {tensor.dtype}: give tensor.dequantize(), or tensor.int_repr()")
        if tensor.device.type == "meta":
            raise Refused("device", "it is on the device meta, which has no memory: give a tensor with values")
        if tensor._is_zerotensor():
            raise Refused("storage", "it is a tensor of zeros without memory: give tensor.clone()")
        _check_storage(tensor)


def _check_storage(tensor: Any) -> None:
    """Rejects a PyTorch tensor whose storage is smaller than its shape and strides require."""
    if not tensor.numel():
        return
    last = tensor.storage_offset() + sum((extent - 1) * step for extent, step in zip(tensor.shape, tensor.stride(), strict=True))
    needed, has = (last + 1) * tensor.element_size(), tensor.untyped_storage().nbytes()
    if has < needed:
        freed = "its memory was freed, as FSDP does" if has == 0 else f"its storage has {counted(has, 'byte')}"
        raise Refused("storage", f"{freed}, and its shape {tuple(tensor.shape)} and strides {tuple(tensor.stride())} need {needed}")


def _unreadable(error: Exception) -> Refused:
    lines = str(error).splitlines() or [type(error).__name__]
    return Refused("buffer", f"PyTorch cannot provide its memory: {lines[0]}")


def _of_torch(tensor: Any) -> tuple[Any, str | None, tuple[int, ...]]:
    torch = sys.modules["torch"]
    try:
        check_tensor(tensor)
        with torch._C.DisableTorchFunctionSubclass():
            if tensor.device.type != "cpu":
                raise _on_device(tensor.device)
            if not tensor.is_contiguous():
                raise _not_contiguous(tuple(tensor.stride()))
            size = tensor.numel() * tensor.element_size()
            # Hold the storage too: the tensor may be given another one while it is lent.
            owner = (tensor, tensor.untyped_storage())
            return _of_address(tensor.data_ptr() if size else 0, size, owner), str(tensor.dtype), tuple(tensor.shape)
    except (RuntimeError, NotImplementedError, ValueError, AttributeError) as error:
        raise _unreadable(error) from None


def _is(array: Any, module: str, name: str) -> bool:
    known = getattr(sys.modules.get(module), name, None)
    return known is not None and isinstance(array, known)


def lend(array: Any) -> tuple[Any, str | None, tuple[int, ...]]:
    """Returns a view of an array's memory as bytes, the name of its element type, and its shape."""
    if _is(array, "numpy", "ndarray"):
        return _of_numpy(array)
    if _is(array, "torch", "Tensor"):
        return _of_torch(array)
    lent = _of_view(array)
    if lent is not None:
        return lent
    device = getattr(array, "__dlpack_device__", None)
    if device is not None:
        at = device()
        if not isinstance(at, tuple) or len(at) != 2:
            raise Refused("device", f"its device is {type(at).__qualname__}, but DLPack requires a pair of a device kind and a number")
        kind, number = at
        if not all(isinstance(part, int) or hasattr(part, "__index__") for part in at):
            raise Refused("device", f"its device is {at!r:.100}, but DLPack requires a pair of integers, a device kind and a number")
        if kind not in _HOST_DEVICES:
            raise _on_device(f"{int(kind)}:{number}")
    numpy = sys.modules.get("numpy")
    _check_interface(array)
    if numpy is not None and (device is not None or getattr(array, "__array_interface__", None) is not None):
        # DLPack cannot express every element type; such an array is read by NumPy through another protocol.
        by_dlpack = device is not None and not hasattr(array, "__array__")
        try:
            # `asanyarray` keeps the subclass, so that the checks below can reject it.
            made = numpy.from_dlpack(array) if by_dlpack else numpy.asanyarray(array)
        except (ValueError, BufferError, RuntimeError, AttributeError, OverflowError, MemoryError) as error:
            raise Refused("buffer", f"NumPy rejects it: {error}") from None
        if not _is(made, "numpy", "ndarray") or made.dtype.hasobject:
            raise Refused("buffer", f"NumPy cannot convert {type(array).__qualname__} to an array")
        return _of_numpy(made)
    if hasattr(array, "__cuda_array_interface__"):
        raise _on_device("cuda")
    name = type(array).__qualname__
    raise Refused("buffer", f"{name} has no memory to read: give a buffer, a NumPy array or a tensor on the CPU")


def dense(array: Any) -> Any:
    """Returns the array, or a copy that `lend` accepts.

    Arrays of NumPy and PyTorch on the CPU are copied if they are not contiguous or have another byte order.
    """
    if _is(array, "numpy", "ndarray"):
        _check_numpy(array)
        try:
            native = array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
            return native if native.flags.c_contiguous else sys.modules["numpy"].array(native, order="C")
        except (MemoryError, ValueError):
            raise _no_memory(array.nbytes) from None
    if _is(array, "torch", "Tensor"):
        try:
            check_tensor(array)
            with sys.modules["torch"].no_grad():
                return array if array.device.type != "cpu" or array.is_contiguous() else array.contiguous()
        except (RuntimeError, NotImplementedError, ValueError, AttributeError) as error:
            raise _unreadable(error) from None
    return array


# The maximum nesting depth of lists of numbers: NumPy's arrays have at most 64 dims.
_DEEPEST = 64


def _in_numpy(array: Any) -> Any:
    """Converts a PyTorch tensor to an array of NumPy, if necessary with ml_dtypes' types; keeps others."""
    if not _is(array, "torch", "Tensor"):
        return array
    view, name, shape = lend(dense(array))
    dtype = numpy_dtype(str(name).removeprefix("torch."))
    if dtype is None:
        return array
    numpy = sys.modules["numpy"]
    return numpy.frombuffer(view, dtype).reshape(shape) if len(view) else numpy.empty(shape, dtype)


# The maximum count of numbers that are read from lists: a gigabyte of them.
_MOST_NUMBERS = 1 << 27
# The maximum length of a sequence that is not a list or tuple.
_MOST_MADE = 1 << 24
_SCALARS = {int, float, bool, complex, str, bytes, type(None)}


class _Sequences:
    """Converts nested sequences to lists that NumPy can read; each is read once and its length is limited.

    NumPy itself would read any object with a length and an index operator, twice, and ignores masks and
    bounds of the arrays in it.
    """

    def __init__(self) -> None:
        # By the address of a sequence: its converted form, its count of numbers, and the sequence itself. The
        # reference keeps the sequence alive, so that its address is not reused.
        self._known: dict[int, tuple[Any, int, Any]] = {}

    def read(self, given: Any, depth: int = 0) -> tuple[Any, int]:
        """Returns an object that NumPy can read in place of the given one, and its count of numbers."""
        kind = type(given)
        if kind in _SCALARS or _is(given, "numpy", "generic"):
            return given, 1
        if _is(given, "torch", "Tensor"):
            check_tensor(given)
            return _in_numpy(given), given.numel()
        if _is(given, "numpy", "ndarray"):
            _check_numpy(given)
            return given, given.size
        if isinstance(given, Mapping):
            raise Refused("buffer", f"{kind.__qualname__} is not an array of numbers")
        view = _view_of(given)
        if view is not None:
            return given, view.nbytes
        _check_interface(given)
        if any(hasattr(given, name) for name in ("__array_struct__", "__array_interface__", "__array__")):
            # `asanyarray` keeps the subclass, so that the check can reject it.
            made = sys.modules["numpy"].asanyarray(given)
            _check_numpy(made)
            return made, made.size
        if not hasattr(kind, "__len__") or not hasattr(kind, "__getitem__") or isinstance(given, str):
            return given, 1
        if id(given) not in self._known:
            self._known[id(given)] = (*self._listed(given, depth + 1), given)
        return self._known[id(given)][:2]

    def _listed(self, given: Any, depth: int) -> tuple[Any, int]:
        if depth > _DEEPEST:
            raise Refused("shape", f"its lists are nested more than {_DEEPEST} deep, or contain themselves")
        if isinstance(given, range):
            if len(given) > _MOST_NUMBERS:
                raise _too_many(_MOST_NUMBERS)
            if given and -(2**63) <= min(given[0], given[-1], given.stop) and max(given[0], given[-1], given.stop) < 2**63:
                return sys.modules["numpy"].arange(given.start, given.stop, given.step, dtype="int64"), len(given)
        # A list or tuple already exists; other sequences may create their elements on access.
        there = isinstance(given, (list, tuple))
        items = given if there else list(itertools.islice(iter(given), _MOST_MADE + 1))
        if len(items) > (_MOST_NUMBERS if there else _MOST_MADE):
            raise _too_many(_MOST_NUMBERS if there else _MOST_MADE)
        if _SCALARS.issuperset(map(type, items)):
            return items, len(items)
        parts, count = [], 0
        for item in items:
            part, numbers_of = self.read(item, depth)
            count += numbers_of
            if count > _MOST_NUMBERS:
                raise _too_many(_MOST_NUMBERS)
            parts.append(part)
        return parts, count


def _too_many(most: int) -> Refused:
    return Refused("memory", f"it has more than {most} numbers in sequences; give an array")


def _check_interface(array: Any) -> None:
    """Rejects an array with a mask in its interface, because NumPy ignores such masks."""
    interface = getattr(array, "__array_interface__", None)
    if isinstance(interface, dict) and interface.get("mask") is not None:
        raise _masked()


def numbers(array: Any) -> Any:
    """Converts an array, or numbers in nested sequences, to an array of NumPy."""
    import numpy

    try:
        made = numpy.asanyarray(_Sequences().read(array)[0])
    except MemoryError:
        raise Refused("memory", "there is no memory for it as an array of NumPy") from None
    except (ValueError, RuntimeError, OverflowError, BufferError, AttributeError) as error:
        raise Refused("buffer", f"NumPy rejects it: {error}") from None
    _check_numpy(made)
    return numpy.asarray(made)


def _family(array: Any) -> str:
    if _is(array, "torch", "Tensor"):
        return "torch"
    if "numpy" in sys.modules and (_is(array, "numpy", "ndarray") or _is(array, "numpy", "generic") or hasattr(array, "__dlpack__")):
        return "numpy"
    return "view"


def make(like: Any, raw: bool, dtype: str, item_bytes: int, shapes: list[tuple[int, ...]]) -> list[Any]:
    """Makes a new array like `like` for each shape; of bytes if bytes represent elements of another type."""
    family = _family(like)
    if raw:
        shapes = [(*shape, item_bytes) for shape in shapes]
        dtype, item_bytes = "uint8", 1
    if family == "torch":
        torch = sys.modules["torch"]
        kind = getattr(torch, dtype, None)
        if kind is not None:
            try:
                return [torch.empty(shape, dtype=kind, device="cpu") for shape in shapes]
            except RuntimeError:
                raise _no_memory(max(item_bytes * math.prod(shape) for shape in shapes)) from None
    if family == "numpy":
        return [new(dtype, item_bytes, shape) for shape in shapes]
    return [_view(dtype, item_bytes, shape) for shape in shapes]


def new(dtype: str, item_bytes: int, shape: tuple[int, ...]) -> Any:
    """Makes a new array of NumPy, or a memoryview if NumPy is not installed or has no such element type."""
    kind = numpy_dtype(dtype)
    if kind is None:
        return _view(dtype, item_bytes, shape)
    try:
        return sys.modules["numpy"].empty(shape, dtype=kind)
    except (MemoryError, ValueError):
        raise _no_memory(item_bytes * math.prod(shape)) from None


def seen(memory: Any, dtype: Any, shape: tuple[int, ...], start: int, end: int) -> Any:
    """Returns a read-only view of a part of an array of bytes, with NumPy elements of another type."""
    array = memory[start:end].view(dtype).reshape(shape)
    array.flags.writeable = False
    return array


def numpy_dtype(name: str) -> Any:
    """Returns NumPy's dtype of this name, or ml_dtypes'; None without them."""
    try:
        import numpy
    except ImportError:
        return None
    if name in numpy.sctypeDict:
        return numpy.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        return None
    kind = getattr(ml_dtypes, name, None)
    return None if kind is None else numpy.dtype(kind)


def _view(dtype: str, item_bytes: int, shape: tuple[int, ...]) -> Any:
    size = item_bytes * math.prod(shape)
    try:
        view: Any = memoryview(bytearray(size))
    except (MemoryError, OverflowError):
        raise _no_memory(size) from None
    code = _CODES.get(dtype)
    # An empty memoryview cannot be cast to a shape.
    return view if code is None else view.cast(code) if size == 0 else view.cast(code, list(shape))
