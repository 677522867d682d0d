#!/usr/bin/env python3
"""Writes one small checkpoint by Orbax in each form that is read, and a safetensors file of the same contents.

    scripts/make_orbax_facts.py checkpoint/tests/data/orbax

It needs Orbax, JAX and safetensors, and no accelerator. The tests read its output, and so need none of them. Data files
to which the database does not refer are removed.

    zarr2, zarr3    a database (OCDBT) with arrays of that version
    folders         zarr 2 without a database
    levels          a database with several levels and data files, in which most values are out of line
"""
import os, shutil, sys
from pathlib import Path

os.environ.update(XLA_FLAGS="--xla_force_host_platform_device_count=4", JAX_PLATFORMS="cpu")
import jax, jax.numpy as jnp, numpy as np, orbax.checkpoint as ocp, tensorstore
import orbax.checkpoint._src.serialization.tensorstore_utils as options_of_tensorstore
from jax.sharding import NamedSharding, PartitionSpec as P
from safetensors.flax import save_file

MESH = jax.make_mesh((2, 2), ("dp", "tp"))
RANDOM = np.random.RandomState(1)
UNUSED = ("_sharding", "_CHECKPOINT_METADATA", "commit_success.txt", "array_metadatas")


def array(shape, spec, dtype="float32"):
    return jax.device_put(jnp.asarray(RANDOM.randn(*shape), dtype), NamedSharding(MESH, spec))


def write(folder, tree, small, **form):
    """Writes a tree; with `small`, nodes and inline values are limited to a few hundred bytes."""
    usual = options_of_tensorstore._add_ocdbt_write_options

    def limited(spec, target_data_file_size=None):
        usual(spec, target_data_file_size)
        if small:
            spec["config"] |= {"max_decoded_node_bytes": 400, "max_inline_value_bytes": 100}

    options_of_tensorstore._add_ocdbt_write_options = limited
    # Several chunks a device for one array.
    how = jax.tree.map(lambda _: ocp.SaveArgs(), tree) | {"w": ocp.SaveArgs(chunk_byte_size=16)}
    handler = ocp.PyTreeCheckpointHandler(**form)
    ocp.Checkpointer(handler).save(folder.absolute(), args=ocp.args.PyTreeSave(tree, save_args=how))
    options_of_tensorstore._add_ocdbt_write_options = usual
    for name in UNUSED:
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    for manifest in folder.glob("ocdbt.process_*/manifest.ocdbt"):
        manifest.unlink()


def values(folder):
    store = tensorstore.KvStore.open({"driver": "ocdbt", "base": f"file://{folder.absolute()}/"}).result()
    return {key: store.read(key).result().value for key in store.list().result()}


def pruned(folder):
    """Removes data files without which all values are the same."""
    whole = values(folder)
    for path in [*folder.glob("d/*"), *folder.glob("ocdbt.process_*/d/*")]:
        content = path.read_bytes()
        path.unlink()
        try:
            needed = values(folder) != whole
        except Exception:
            needed = True
        if needed:
            path.write_bytes(content)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    tree = {
        "w": array((4, 6), P("dp", "tp")), "e": array((6, 2), P("tp"), "bfloat16"), "l": [np.arange(3, dtype="int64"), None],
        "big": RANDOM.randint(0, 2**31, 400).astype("int32"), "step": 7, "s": "text", "none": {},
    }
    for name, small, form in (("zarr2", False, {}), ("zarr3", False, {"use_zarr3": True}), ("folders", False, {"use_ocdbt": False}), ("levels", True, {})):
        write(target / name, tree, small, **form)
        if name != "folders":
            pruned(target / name)
    leaves = {"w": tree["w"], "e": tree["e"], "big": tree["big"]}
    arrays = {name: np.asarray(leaf) for name, leaf in leaves.items()}
    arrays |= {"l.0": tree["l"][0], "step": np.asarray(7)}
    with jax.enable_x64(True):
        save_file({name: jnp.asarray(leaf) for name, leaf in arrays.items()}, target / "contents.safetensors")
