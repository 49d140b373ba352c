#!/usr/bin/env python3
"""Writes seeds/snapshot*.pickle and moment.pickle as torch.cuda.memory._dump_snapshot does, for tests and fuzzing.

A snapshot has two devices, of which the first has no history. On the second the history begins late: block
0x7f0000000000 was there before and is freed, block 0x7f0000200000 was there before and stays. A moment has no
history, as with enabled="state". usage: make_snapshots.py FOLDER
"""
import pickle
import sys

BASE = 0x7F0000000000
frame = {"filename": "/src/train.py", "line": 42, "name": "forward"}


def event(action, addr, size, time_us, stream=0, **more):
    return {"action": action, "addr": addr, "size": size, "stream": stream, "time_us": time_us,
            "compile_context": "N/A", "user_metadata": "", **more}


def block(address, size, requested, state):
    return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": []}


trace = [
    event("segment_alloc", BASE + 0x400000, 2097152, 1700000000000000),
    event("alloc", BASE + 0x400000, 1000, 1700000000000001, frames=[frame]),
    event("free_requested", BASE, 512, 1700000000000002),
    event("free_completed", BASE, 512, 1700000000000003),
    event("alloc", BASE + 0x400400, 3000, 1700000000000004, stream=94000000, frames=[frame], user_metadata="loss"),
    event("free_requested", BASE + 0x400000, 1000, 1700000000000005),
    event("free_completed", BASE + 0x400000, 1000, 1700000000000006),
    event("alloc", BASE + 0x400000, 700, 1700000000000007),
    event("free_requested", BASE + 0x400400, 3000, 1700000000000008, stream=94000000),
    {"action": "oom", "device_free": 1048576, "size": 1 << 30, "stream": 0, "time_us": 1700000000000009},
    event("snapshot", 0, 0, 1700000000000010),
]
snapshot = {
    "segments": [
        {"device": 1, "address": BASE, "total_size": 4194304, "stream": 0, "segment_type": "small",
         "segment_pool_id": (0, 0), "is_expandable": False, "allocated_size": 2560, "frames": [],
         "blocks": [block(BASE, 512, 0, "inactive"), block(BASE + 0x200000, 2048, 2000, "active_allocated"),
                    block(BASE + 0x200800, 2093056, 0, "inactive")]},
        {"device": 1, "address": BASE + 0x400000, "total_size": 2097152, "stream": 0, "segment_type": "small",
         "segment_pool_id": (0, 0), "is_expandable": False, "allocated_size": 1024, "frames": [],
         "blocks": [block(BASE + 0x400000, 1024, 700, "active_allocated"),
                    block(BASE + 0x400400, 3072, 3000, "active_awaiting_free"),
                    block(BASE + 0x401000, 2093056, 0, "inactive")]},
    ],
    "device_traces": [[], trace],
    "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1,
                           "garbage_collection_threshold": 0.0, "expandable_segments": False,
                           "hash": -(2**70), "none": None},
    "external_annotations": [],
}
for name, protocol, settings in (("snapshot.pickle", 4, ""), ("snapshot2.pickle", 2, "max_split_size_mb:128")):
    snapshot["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"] = settings
    with open(f"{sys.argv[1]}/{name}", "wb") as file:
        pickle.dump(snapshot, file, protocol=protocol)

package = "/venv/lib/python3.12/site-packages/torch/nn/modules/"
made = [{"filename": package + "linear.py", "line": 98, "name": "__init__"}, {**frame, "line": 7, "name": "<module>"}]
computed = [{"filename": package + "linear.py", "line": 134, "name": "forward"},
            {"filename": package + "module.py", "line": 1790, "name": "_call_impl"}, {**frame, "name": "train"}]
moment = {
    "segments": [
        {"device": 0, "address": BASE, "total_size": 20971520, "stream": 0, "segment_type": "large",
         "segment_pool_id": (0, 0), "is_expandable": False, "allocated_size": 6291456, "frames": [],
         "blocks": [{**block(BASE, 4194304, 4194304, "active_allocated"), "frames": made},
                    {**block(BASE + 4194304, 2097152, 2000000, "active_allocated"), "frames": computed},
                    block(BASE + 6291456, 14680064, 0, "inactive")]},
    ],
    "device_traces": [],
    "allocator_settings": {},
}
with open(f"{sys.argv[1]}/moment.pickle", "wb") as file:
    pickle.dump(moment, file, protocol=4)
