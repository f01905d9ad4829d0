"""A reader of another process's context, by OpenTelemetry's specifications alone: nothing of this repository is used, neither code
nor attributes of its own.

In: a process id, how many looks, and for each thread its id and an address of which 16 bytes are wanted with each look. Out: lines of
JSON on standard output: what the process says of itself, then what its threads work for, each looked at while it stands still.

Sources: OTEP 4719 "Process Context" and OTEP 4947 "Thread Context", "Reading Protocol"; processcontext.proto, resource.proto,
common.proto; System V ABI, "ELF"; Drepper, "ELF Handling For Thread-Local Storage", 3.4; ptrace(2).
"""

import ctypes
import json
import os
import platform
import random
import struct
import sys
import time

NAMES = ("[anon_shmem:OTEL_CTX]", "[anon:OTEL_CTX]", "/memfd:OTEL_CTX")
# Linux, include/uapi/linux/ptrace.h and elf.h.
PTRACE_CONT, PTRACE_DETACH, PTRACE_GETREGSET, PTRACE_SEIZE, PTRACE_INTERRUPT = 7, 17, 0x4204, 0x4206, 0x4207
NT_PRSTATUS, NT_ARM_TLS, WALL = 1, 0x401, 0x40000000
# Linux, arch/x86/include/uapi/asm/ptrace.h: fs_base is the 22nd of 27 words.
FS_BASE, USER_REGS = 21 * 8, 27 * 8
PT_TLS, SHT_DYNSYM, STT_TLS = 7, 11, 6


def fields(message):
    """Numbers and values of a protobuf message."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    while at < len(message):
        tag = varint()
        kind = tag & 7
        if kind == 0:
            value = varint()
        else:
            length = {1: 8, 5: 4}.get(kind) or varint()
            value, at = message[at : at + length], at + length
        yield tag >> 3, value


def any_value(message):
    for number, value in fields(message):
        if number == 1:
            return value.decode()
        if number in (2, 3):
            return value - (1 << 64) if value >> 63 else value
        if number == 4:
            return struct.unpack("<d", value)[0]
        if number == 5:
            return [any_value(each) for field, each in fields(value) if field == 1]
    return None


def attributes(message, number):
    pairs = (dict(fields(value)) for field, value in fields(message) if field == number)
    return {pair[1].decode(): any_value(pair[2]) for pair in pairs}


class Process:
    def __init__(self, pid):
        self.pid = pid
        self.memory = open(f"/proc/{pid}/mem", "rb", buffering=0)

    def read(self, address, length):
        data = os.pread(self.memory.fileno(), length, address)
        assert len(data) == length, f"{length} bytes at {address:#x}"
        return data

    def header(self):
        """Where the process context begins."""
        for line in open(f"/proc/{self.pid}/maps"):
            parts = line.split(maxsplit=5)
            if len(parts) == 6 and parts[5].startswith(NAMES):
                start = int(line.split("-")[0], 16)
                if self.read(start, 12) == b"OTEL_CTX" + struct.pack("=I", 2):
                    return start
        return None

    def context(self):
        """Resource and further attributes; each read again if they change meanwhile, waited for if there are none yet."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            header = self.header()
            if header is not None:
                _, _, size, published, payload = struct.unpack("=8sIIQQ", self.read(header, 32))
                if published:
                    message = self.read(payload, size)
                    if self.read(header + 16, 8) == struct.pack("=Q", published):
                        resource = b"".join(value for number, value in fields(message) if number == 1)
                        return attributes(resource, 1), attributes(message, 2)
            time.sleep(0.001)
        raise TimeoutError("there is no process context")

    def tls_offset(self):
        """Distance of `otel_thread_ctx_v1` of the executable from a thread's pointer."""
        elf = open(f"/proc/{self.pid}/exe", "rb").read()
        assert elf[:6] == b"\x7fELF\x02\x01"
        (phoff, shoff), (phentsize, phnum, shentsize, shnum) = struct.unpack_from("<QQ", elf, 32), struct.unpack_from("<4H", elf, 54)
        segments = [struct.unpack_from("<IIQQQQQQ", elf, phoff + n * phentsize) for n in range(phnum)]
        _, _, _, vaddr, _, _, size, align = next(each for each in segments if each[0] == PT_TLS)
        value = self.symbol(elf, shoff, shentsize, shnum)
        if platform.machine() == "x86_64":
            # Variant II: the segment ends at the thread pointer, as its alignment has it.
            return value - size - (-vaddr - size) % align
        # Variant I: it begins behind the two words of the thread control block.
        return value + 16 + (vaddr - 16) % align

    @staticmethod
    def symbol(elf, shoff, shentsize, shnum):
        sections = [struct.unpack_from("<IIQQQQIIQQ", elf, shoff + n * shentsize) for n in range(shnum)]
        _, _, _, _, offset, size, link, _, _, entsize = next(each for each in sections if each[1] == SHT_DYNSYM)
        names = sections[link][4]
        for at in range(offset, offset + size, entsize):
            name, info, _, section, value, _ = struct.unpack_from("<IBBHQQ", elf, at)
            text = elf[names + name : elf.index(0, names + name)]
            if text == b"otel_thread_ctx_v1" and info & 15 == STT_TLS and section != 0:
                return value
        raise LookupError("otel_thread_ctx_v1 is not in .dynsym")


LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.restype = ctypes.c_long
LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]


def ptrace(request, tid, address=0, data=0):
    if LIBC.ptrace(request, tid, address, data) == -1:
        raise OSError(ctypes.get_errno(), f"ptrace {request:#x} of {tid}: {os.strerror(ctypes.get_errno())}")


class Thread:
    """A thread that stands still, but for `run`."""

    def __init__(self, tid):
        self.tid = tid
        ptrace(PTRACE_SEIZE, tid)
        self.stop()

    def stop(self):
        ptrace(PTRACE_INTERRUPT, self.tid)
        _, status = os.waitpid(self.tid, WALL)
        assert os.WIFSTOPPED(status), f"{self.tid} has ended"
        # One that stopped for a signal gets it when it goes on.
        self.signal = 0 if status >> 16 else os.WSTOPSIG(status)

    def run(self, seconds):
        ptrace(PTRACE_CONT, self.tid, 0, self.signal)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass
        self.stop()

    def pointer(self):
        x86 = platform.machine() == "x86_64"
        registers = ctypes.create_string_buffer(USER_REGS if x86 else 8)
        place = (ctypes.c_void_p * 2)(ctypes.addressof(registers), len(registers))
        ptrace(PTRACE_GETREGSET, self.tid, NT_PRSTATUS if x86 else NT_ARM_TLS, ctypes.addressof(place))
        return struct.unpack_from("=Q", registers.raw, FS_BASE if x86 else 0)[0]


def record(process, place, keys):
    """What the thread works for whose pointer to its record is at `place`; `keys` gives the keys, anew if need be."""
    seen = {"trace_id": None, "span_id": None, "trace_flags": 0, "tags": {}}
    address = struct.unpack("=Q", process.read(place, 8))[0]
    if address == 0:
        return seen
    trace_id, span_id, valid, flags, size = struct.unpack("=16s8sBBH", process.read(address, 28))
    assert valid == 1 and address % 2 == 0 and 28 + size <= 640, (valid, hex(address), size)
    assert any(trace_id) == any(span_id), (trace_id, span_id)
    if any(span_id):
        seen["trace_id"], seen["span_id"] = trace_id.hex(), span_id.hex()
    seen["trace_flags"] = flags
    data = process.read(address + 28, size)
    while data:
        key, length = data[0], data[1]
        assert len(data) >= 2 + length, "a value that is cut off"
        seen["tags"][keys(key)] = data[2 : 2 + length].decode()
        data = data[2 + length :]
    return seen


def main(pid, looks, threads):
    process = Process(int(pid))
    resource, own = process.context()
    assert own["threadlocal.schema_version"] == "tlsdesc_v1_dev", own
    print(json.dumps({"resource": resource, "attributes": own}))
    known = own["threadlocal.attribute_key_map"]

    def keys(number):
        nonlocal known
        # New ones are published a moment after they are used.
        while number >= len(known):
            known = process.context()[1]["threadlocal.attribute_key_map"]
        return known[number]

    offset = process.tls_offset()
    print(json.dumps({"tls_offset": offset}), flush=True)
    stopped = []
    for thread in threads:
        tid, watch = thread.split(":")
        stopped.append((Thread(int(tid)), int(watch)))
    # Whoever started this lets the threads begin now.
    print(json.dumps({"attached": len(stopped)}), flush=True)
    sys.stdin.readline()
    for number in range(int(looks)):
        thread, watch = stopped[number % len(stopped)]
        thread.run(random.random() * 40e-6)
        seen = record(process, thread.pointer() + offset & (1 << 64) - 1, keys)
        seen["watch"] = struct.unpack("=QQ", process.read(watch, 16))
        print(json.dumps(seen))
    for thread, _ in stopped:
        ptrace(PTRACE_DETACH, thread.tid, 0, thread.signal)


main(sys.argv[1], sys.argv[2], sys.argv[3:])
