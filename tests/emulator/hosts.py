"""What a host can do wrong, and how the emulator's driver says so: each function gets a host, makes one mistake, and returns the status
that it sees; the report's words and the status stand in WRONG. RIGHT are uses that must pass."""

import ctypes as C

import numpy as np

import host as H
import kernels as K

X = np.arange(128, dtype=np.float32)
DOUBLES = "kernel void k(global double *y) { y[get_global_id(0)] = 1; }\n"
HALVES = "kernel void k(global half *y) { y[get_global_id(0)] = y[0] * y[1]; }\n"
BLOCKS = "kernel __attribute__((reqd_work_group_size(8, 1, 1))) void k(global float *y) { y[get_global_id(0)] = 0; }\n"
LOCALS = "kernel void k(global float *y, local float *p) { p[0] = 1; y[get_global_id(0)] = 0; }\n"


def copy_kernel(host, y=None, x=None):
    kernel = host.kernel(K.COPY)
    for index, value in enumerate([y or host.buffer(nbytes=512), x or host.buffer(X), np.int32(128)]):
        assert host.set(kernel, index, value) == 0
    return kernel


def mapping(host, buffer, flags, nbytes=512):
    error = C.c_int32(0)
    at = host.cl.clEnqueueMapBuffer(host.queue, buffer, 1, C.c_uint64(flags), C.c_size_t(0), C.c_size_t(nbytes), 0, None, None, C.byref(error))
    assert at, error.value
    return C.c_void_p(at)


def unmap(host, buffer, at):
    return host.call("clEnqueueUnmapMemObject", host.queue, buffer, at, 0, None, None)


# ---------------------------------------------------------------------------------------------- mistakes

def image_that_is_stored(host):
    """A buffer, and an image over it, whose reads do not see what the kernel stores."""
    text = "kernel void k(global float *y, read_only image1d_buffer_t x) { y[get_global_id(0)] = read_imagef(x, (int)get_global_id(0)).x; }"
    rows = host.buffer(np.zeros(64, np.float32))
    image, status = host.try_image(H.Image(np.zeros((1, 16, 4), np.float32)), rows, kind=H.IMAGE1D_BUFFER)
    assert image, status
    kernel = host.kernel(text)
    assert host.set(kernel, 0, rows) == 0 and host.set(kernel, 1, image) == 0 and host.enqueue(kernel, [16]) == 0
    return host.finish()


def released_twice(host):
    buffer = host.buffer(nbytes=64)
    host.release(buffer)
    return host.call("clReleaseMemObject", buffer)


def used_after_release(host):
    x = host.buffer(X)
    kernel = copy_kernel(host, x=x)
    host.release(x)
    return host.enqueue(kernel, [128])


def other_kind(host):
    return host.call("clFinish", host.context)


def not_released(host):
    host.must("clRetainContext", host.context)
    return 0


def argument_size(host):
    return host.set(host.kernel(K.COPY), 2, np.int64(1))


def argument_missing(host):
    kernel = host.kernel(K.COPY)
    host.set(kernel, 0, host.buffer(nbytes=512))
    return host.enqueue(kernel, [128])


def argument_beyond(host):
    return host.set(host.kernel(K.COPY), 3, np.int32(1))


def no_kernel(host):
    program, _ = host.program(K.COPY)
    return host.try_make("Kernel", program, b"none")[1]


def not_built(host):
    words = (C.c_char_p * 1)(K.COPY.encode())
    return host.try_make("Kernel", host.make("ProgramWithSource", host.context, 1, words, None), b"k")[1]


def no_multiple(host):
    return host.enqueue(copy_kernel(host), [100], [64])


def too_large_a_block(host):
    return host.enqueue(copy_kernel(host), [128], [128])


def another_block(host):
    kernel = host.kernel(BLOCKS)
    host.set(kernel, 0, host.buffer(nbytes=512))
    return host.enqueue(kernel, [128], [4])


def too_much_local(host):
    kernel = host.kernel(LOCALS)
    host.set(kernel, 0, host.buffer(nbytes=512))
    host.set(kernel, 1, H.Local(5000))
    return host.enqueue(kernel, [128], [64])


def launch_on_mapped(host):
    y = host.buffer(nbytes=512)
    at = mapping(host, y, H.MAP_WRITE)
    status = host.enqueue(copy_kernel(host, y), [128])
    unmap(host, y, at)
    return status


def write_beyond(host):
    return host.write(host.buffer(nbytes=64), X)


def unmapped_twice(host):
    y = host.buffer(nbytes=512)
    at = mapping(host, y, H.MAP_WRITE)
    unmap(host, y, at)
    return unmap(host, y, at)


def write_to_mapped_for_reading(host):
    y = host.buffer(X)
    at = mapping(host, y, H.MAP_READ)
    C.memset(at, 7, 4)
    unmap(host, y, at)
    return host.finish()


def ends_mapped(host):
    mapping(host, host.buffer(X), H.MAP_READ)
    return 0


def part_misaligned(host):
    return host.try_make("SubBuffer", host.buffer(X), C.c_uint64(1), 0x1220, H.sizes([4, 64]))[1]


def image_pitch(host):
    image = H.Image(np.zeros((4, 10, 4), np.float32), pitch=10 * 16)
    return host.try_image(image, host.buffer(nbytes=4096))[1]


def image_over_buffer(host):
    image = H.Image(np.zeros((4, 64, 4), np.float32), pitch=64 * 16)
    return host.try_image(image, host.buffer(nbytes=4096))[1]


def image_too_wide(host):
    return host.try_image(H.Image(np.zeros((1, 200, 4), np.float32)))[1]


def host_memory(host):
    return host.try_make("Buffer", host.context, C.c_uint64(1 | 16), C.c_size_t(256), None)[1]


def host_memory_unseen(host):
    """A kernel's alone."""
    kernel, y = host.kernel(K.COPY), host.make("Buffer", host.context, C.c_uint64(1 | 16), C.c_size_t(512), None)
    for index, value in enumerate([y, host.buffer(X), np.int32(1)]):
        host.set(kernel, index, value)
    return host.enqueue(kernel, [128]) or host.finish()


def image_without(host):
    return host.try_image(H.Image(np.zeros((1, 20, 4), np.float32)))[1]


def syntax(host):
    return host.program("kernel void k(global float *y) { y[0] = z; }")[1]


def doubles(host):
    return host.program(DOUBLES)[1]


def halves(host):
    return host.program(HALVES)[1]


def profile_without(host):
    event, time = C.c_void_p(), C.c_uint64()
    host.enqueue(copy_kernel(host), [128], event=event)
    host.finish()
    status = host.call("clGetEventProfilingInfo", event, 0x1282, C.c_size_t(8), C.byref(time), None)
    host.must("clReleaseEvent", event)
    return status


def two_queues(host, ordered):
    """Two kernels in two queues, of which the second reads what the first stores."""
    y, z = host.buffer(nbytes=512), host.buffer(nbytes=512)
    other = host.make("CommandQueue", host.context, host.device, C.c_uint64(0))
    event = C.c_void_p()
    host.enqueue(copy_kernel(host, y), [128], event=event)
    kernel = copy_kernel(host, z, y)
    wait = (C.c_void_p * 1)(event.value)
    status = host.call("clEnqueueNDRangeKernel", other, kernel, 1, None, H.sizes([128]), None, 1 if ordered else 0, wait if ordered else None, None)
    host.must("clReleaseEvent", event)
    host.finish()
    return status or host.call("clFinish", other)


def unordered(host):
    return two_queues(host, False)


def event_never_set(host):
    event = host.make("UserEvent", host.context)
    wait = (C.c_void_p * 1)(event.value)
    host.must("clEnqueueMarkerWithWaitList", host.queue, 1, wait, None)
    return host.finish()


# name, function, device, status, words of the report (None: nothing is reported)
WRONG = [
    ("released twice", released_twice, "", -38, "clReleaseMemObject: memory object .* is released already"),
    ("used when it is released", used_after_release, "", -38, "clEnqueueNDRangeKernel: memory object .* is released already"),
    ("a context for a queue", other_kind, "", -36, "clFinish: context .* is no command queue"),
    ("not released", not_released, "", 0, "1 objects are not released"),
    ("an argument's size", argument_size, "", -51, "clSetKernelArg: k: argument 2 'n' has 4 bytes, not 8"),
    ("an argument that is not set", argument_missing, "", -52, "k: argument 1 'x' was not set"),
    ("an argument too many", argument_beyond, "", -49, "k has 3 arguments, none 3"),
    ("a kernel that there is not", no_kernel, "", -46, "clCreateKernel: no kernel 'none'"),
    ("a program that is not built", not_built, "", -45, "is not built"),
    ("a size that is no multiple of the block's", no_multiple, "", -54, "100 work-items along axis 0 are no multiple of 64"),
    ("a block too large", too_large_a_block, "group=64", -54, "a block of 128 work-items, the device has up to 64"),
    ("another block than the kernel requires", another_block, "", -54, "a block of 4 along axis 0, where it requires 8"),
    ("more local memory than there is", too_much_local, "local=4096", -5, "k takes 5000 bytes of local memory, the device has 4096"),
    ("a launch on mapped memory", launch_on_mapped, "", -59, "k: argument 0 'y' is mapped by the host"),
    ("more bytes than a buffer has", write_beyond, "", -30, "clEnqueueWriteBuffer: bytes 0..512 of memory object .*, which has 64"),
    ("unmapped twice", unmapped_twice, "", -30, "is no part of memory object .* that is mapped"),
    ("a write to what is mapped to be read", write_to_mapped_for_reading, "", 0, "the host has written what it mapped to read"),
    ("memory that ends while it is mapped", ends_mapped, "", 0, "ends while the host has it mapped"),
    ("a part that is misaligned", part_misaligned, "", -13, "byte 4 is no multiple of 128"),
    ("an image that the kernel stores", image_that_is_stored, "", -5, "k: 'y' may be stored, and 'x' is an image of the same bytes"),
    ("an image's rows against the pitch", image_pitch, "", -65, "rows of 160 bytes, which are no multiple of 64 pixels"),
    ("an image over a buffer where there are none", image_over_buffer, "pitch=0", -59, "no image of two axes over a buffer"),
    ("an image too wide", image_too_wide, "width=128", -40, "200 x 1 pixels; the device has up to 128"),
    ("the host's memory where the device has its own", host_memory, "", 0, "is asked for in the host's memory, and the device has its own"),
    ("the host's memory that it does not look at", host_memory_unseen, "unified=1", 0, "is asked for in the host's memory, and the host never maps it"),
    ("an image without images", image_without, "image=0", -59, "the device has no images"),
    ("a text that is none", syntax, "", -11, "clBuildProgram: 1:41: error: use of undeclared identifier 'z'"),
    ("doubles without doubles", doubles, "double=0", -11, "clBuildProgram: .*double"),
    ("halves without halves", halves, "half=0", -11, "clBuildProgram: .*half"),
    ("times without profiling", profile_without, "", -7, "the queue was made without profiling"),
    ("two queues without an event", unordered, "", -5, "race: .* reads byte .* which .* writes in a launch of another queue that no event orders"),
    ("an event that is never set", event_never_set, "", -5, "waits for user event .*, which the host has not set"),
]


# ------------------------------------------------------------------------------------------- right uses

def late(host):
    """Commands run when they are waited for: who does not wait reads what was there."""
    y, early, then = host.buffer(np.zeros(128, np.float32)), np.full(128, -1, np.float32), np.full(128, -1, np.float32)
    host.enqueue(copy_kernel(host, y), [128], [64])
    assert host.read(y, early, blocks=0) == 0 and (early == -1).all(), early
    assert host.read(y, then) == 0 and (then == X).all() and (early == X).all(), then


def mapped(host):
    y = host.buffer(np.zeros(128, np.float32))
    at = mapping(host, y, H.MAP_WRITE)
    C.memmove(at, X.ctypes.data, X.nbytes)
    got = np.zeros(128, np.float32)
    assert unmap(host, y, at) == 0 and host.read(y, got) == 0 and (got == X).all(), got


def parts(host):
    whole, got = host.buffer(nbytes=1024), np.zeros(128, np.float32)
    part = host.make("SubBuffer", whole, C.c_uint64(1), 0x1220, H.sizes([512, 512]))
    kernel = copy_kernel(host, part)
    host.release(whole)                       # the part keeps it
    assert host.enqueue(kernel, [128], [64]) == 0 and host.finish() == 0 and host.read(part, got) == 0
    assert (got == X).all(), got


def texture(host):
    """Pixels by images of floats and halves, of their own and over a buffer; a border is zeros."""
    text = """const sampler_t s = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;
    kernel void k(global float4 *y, read_only image2d_t x)
    { const int i = get_global_id(0); y[i] = i < 20 ? read_imagef(x, (int2)(i % 5, i / 5)) : read_imagef(x, s, (int2)(5, i - 20)); }"""
    for dtype in (np.float32, np.float16):
        for of_buffer in (False, True):
            pixels, y = np.arange(80).reshape(4, 5, 4).astype(dtype), np.zeros(96, np.float32)
            assert host.run(text, [y, H.Image(pixels, 64 * 4 * pixels.itemsize, of_buffer)], [24], [8]) == 0
            assert (y[:80] == pixels.ravel()).all() and (y[80:] == 0).all(), y


def buffer_image(host):
    """An image of one axis over a buffer, written."""
    text = "kernel void k(write_only image1d_buffer_t y) { const int i = get_global_id(0); write_imagef(y, i, (float4)(i, 1, 2, 3)); }"
    rows, got = host.buffer(nbytes=256), np.zeros((16, 4), np.float32)
    image, status = host.try_image(H.Image(np.zeros((1, 16, 4), np.float32)), rows, kind=H.IMAGE1D_BUFFER)
    assert image, status
    kernel = host.kernel(text)
    assert host.set(kernel, 0, image) == 0 and host.enqueue(kernel, [16]) == 0 and host.finish() == 0 and host.read(rows, got) == 0
    assert (got[:, 0] == np.arange(16)).all() and (got[:, 3] == 3).all(), got


def binary(host):
    """A program's binary makes the same program; another driver's, or a part of one, is refused."""
    program, _ = host.program(K.COPY)
    size = C.c_size_t()
    host.must("clGetProgramInfo", program, 0x1165, C.c_size_t(8), C.byref(size), None)
    block = (C.c_ubyte * size.value)()
    host.must("clGetProgramInfo", program, 0x1166, C.c_size_t(8), C.byref(C.c_void_p(C.addressof(block))), None)

    def load(data):
        words, state = (C.c_void_p * 1)(C.addressof(data)), C.c_int32()
        return host.try_make("ProgramWithBinary", host.context, 1, C.byref(host.device), H.sizes([len(data)]), words, C.byref(state))
    again, status = load(block)
    assert again and host.call("clBuildProgram", again, 0, None, None, None, None) == 0, status
    kernel, y, got = host.make("Kernel", again, b"k"), host.buffer(nbytes=512), np.zeros(128, np.float32)
    for index, value in enumerate([y, host.buffer(X), np.int32(1)]):
        host.set(kernel, index, value)
    assert host.enqueue(kernel, [128]) == 0 and host.read(y, got) == 0 and (got == X).all(), got
    other = (C.c_ubyte * size.value)(*block)
    other[10] ^= 1                            # in the driver's name
    assert load(other) == (None, -42) and load((C.c_ubyte * 200)(*block[:200])) == (None, -42)


def times(host):
    event, begin, end = C.c_void_p(), C.c_uint64(), C.c_uint64()
    host.enqueue(copy_kernel(host), [128], event=event)
    host.must("clWaitForEvents", 1, C.byref(event))
    host.must("clGetEventProfilingInfo", event, 0x1282, C.c_size_t(8), C.byref(begin), None)
    host.must("clGetEventProfilingInfo", event, 0x1283, C.c_size_t(8), C.byref(end), None)
    host.must("clReleaseEvent", event)
    assert 0 < begin.value <= end.value, (begin.value, end.value)


def out_of_order(host):
    """A queue out of order: what no event orders may run last first."""
    y, got = host.buffer(np.zeros(128, np.float32)), np.zeros(128, np.float32)
    event = C.c_void_p()
    host.enqueue(copy_kernel(host, y), [128], event=event)
    host.must("clEnqueueFillBuffer", host.queue, y, address(np.float32([7])), C.c_size_t(4), C.c_size_t(0), C.c_size_t(512), 0, None, None)
    assert host.finish() == 0 and host.read(y, got) == 0 and (got == X).all(), got
    host.must("clEnqueueFillBuffer", host.queue, y, address(np.float32([7])), C.c_size_t(4), C.c_size_t(0), C.c_size_t(512), 1,
              C.byref(event), None)
    host.must("clReleaseEvent", event)
    assert host.finish() == 0 and host.read(y, got) == 0 and (got == 7).all(), got


def address(array):
    return array.ctypes.data_as(C.c_void_p)


RIGHT = [("commands run when they are waited for", late, 0), ("mapped memory", mapped, 0), ("a part of a buffer", parts, 0),
         ("images", texture, 0), ("an image of a buffer", buffer_image, 0), ("a program's binary", binary, 0),
         ("times of events", times, 2), ("two queues and an event", lambda host: two_queues(host, True), 0), ("a queue out of order", out_of_order, 1)]
