"""A Python program that loads a plugin with the profiler in it: host.py PLUGIN MILLISECONDS. Prints one line of JSON."""
import ctypes
import json
import os
import signal
import sys
import threading

plugin = ctypes.CDLL(sys.argv[1])
plugin.plugin_stop.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
enough = threading.Event()


def busy():
    while not enough.is_set():
        sum(range(1000))


thread = threading.Thread(target=busy)
thread.start()
started = plugin.plugin_start()
plugin.plugin_work(int(sys.argv[2]))
account = ctypes.create_string_buffer(1 << 16)
ended = plugin.plugin_stop(account, len(account))
for _ in range(100):
    os.kill(os.getpid(), signal.SIGPROF)
enough.set()
thread.join()
print(json.dumps({"started": started, "ended": ended, "stats": json.loads(account.value)}))
