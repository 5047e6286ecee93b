"""A host in Python for kernels without a program around them: OpenCL's functions by ctypes, as few as the emulator's tests call."""

import ctypes as C

import numpy as np

from suite import Failure

POINTERS = ("clCreateContext", "clCreateCommandQueue", "clCreateBuffer", "clCreateSubBuffer", "clCreateImage", "clCreateSampler",
            "clCreateProgramWithSource", "clCreateProgramWithBinary", "clCreateKernel", "clEnqueueMapBuffer", "clCreateUserEvent")
RGBA, HALF, FLOAT = 0x10B5, 0x10DD, 0x10DE
IMAGE2D, IMAGE1D_BUFFER = 0x10F1, 0x10F6
READ_WRITE, READ_ONLY, USE_HOST, COPY_HOST = 1, 4, 8, 32
MAP_READ, MAP_WRITE = 1, 2
RELEASE = {"Context": "clReleaseContext", "CommandQueue": "clReleaseCommandQueue", "Buffer": "clReleaseMemObject",
           "SubBuffer": "clReleaseMemObject", "Image": "clReleaseMemObject", "Sampler": "clReleaseSampler",
           "ProgramWithSource": "clReleaseProgram", "ProgramWithBinary": "clReleaseProgram", "Kernel": "clReleaseKernel",
           "UserEvent": "clReleaseEvent"}


class Local(int):
    """An argument in local memory, of so many bytes."""


class Image:
    """An argument that is an image: rows, columns, four channels; its pixels are in a buffer, in rows of so many bytes, if it says so."""

    def __init__(self, array, pitch=0, of_buffer=False):
        self.array, self.pitch, self.of_buffer = array, pitch, of_buffer


class Format(C.Structure):
    _fields_ = [("order", C.c_uint32), ("type", C.c_uint32)]


class Description(C.Structure):
    _fields_ = [("type", C.c_uint32), ("width", C.c_size_t), ("height", C.c_size_t), ("depth", C.c_size_t), ("array", C.c_size_t),
                ("row_pitch", C.c_size_t), ("slice_pitch", C.c_size_t), ("levels", C.c_uint32), ("samples", C.c_uint32),
                ("buffer", C.c_void_p)]


def sizes(numbers):
    return (C.c_size_t * len(numbers))(*numbers)


def address(array):
    return array.ctypes.data_as(C.c_void_p)


class Host:
    """A context and a queue; what is made by it is released when it ends, but for what was released already."""

    def __init__(self, library, properties=0, device_type=4):        # of a GPU
        self.cl, self.made = library, []
        for name in POINTERS:
            getattr(self.cl, name).restype = C.c_void_p
        platform, device = C.c_void_p(), C.c_void_p()
        self.must("clGetPlatformIDs", 1, C.byref(platform), None)
        self.must("clGetDeviceIDs", platform, C.c_uint64(device_type), 1, C.byref(device), None)
        self.device = device
        self.context = self.make("Context", None, 1, C.byref(device), None, None)
        self.queue = self.make("CommandQueue", self.context, device, C.c_uint64(properties))

    def __enter__(self):
        return self

    def __exit__(self, *why):
        for release, handle in reversed(self.made):
            self.must(release, C.c_void_p(handle))
        self.made = []

    def call(self, name, *arguments):
        """The status."""
        return getattr(self.cl, name)(*arguments)

    def must(self, name, *arguments):
        status = self.call(name, *arguments)
        if status != 0:
            raise Failure(f"{name}: status {status}")

    def try_make(self, kind, *arguments):
        """A handle or None, and the status."""
        error = C.c_int32(0)
        handle = getattr(self.cl, f"clCreate{kind}")(*arguments, C.byref(error))
        if handle:
            self.made.append((RELEASE[kind], handle))
        return (C.c_void_p(handle) if handle else None), error.value

    def make(self, kind, *arguments):
        handle, status = self.try_make(kind, *arguments)
        if not handle:
            raise Failure(f"clCreate{kind}: status {status}")
        return handle

    def release(self, handle):
        """Now."""
        index = next(i for i, (_, made) in enumerate(self.made) if made == handle.value)
        self.must(self.made.pop(index)[0], handle)

    def buffer(self, array=None, nbytes=0, flags=READ_WRITE):
        """Filled by the array, or of so many bytes that nobody has written."""
        if array is None:
            return self.make("Buffer", self.context, C.c_uint64(flags), C.c_size_t(nbytes), None)
        return self.make("Buffer", self.context, C.c_uint64(flags | COPY_HOST), C.c_size_t(array.nbytes), address(array))

    def try_image(self, image, buffer=None, kind=IMAGE2D):
        rows, columns = image.array.shape[:2]
        form = Format(RGBA, HALF if image.array.dtype == np.float16 else FLOAT)
        what = Description(type=kind, width=columns, height=rows, row_pitch=image.pitch if buffer else 0, buffer=buffer.value if buffer else None)
        return self.try_make("Image", self.context, C.c_uint64(READ_WRITE if buffer else READ_WRITE | COPY_HOST), C.byref(form),
                             C.byref(what), None if buffer else address(image.array))

    def image(self, image):
        if not image.of_buffer:
            return self.try_image(image)[0]
        rows = np.zeros((image.array.shape[0], image.pitch), np.uint8)
        flat = image.array.reshape(image.array.shape[0], -1).view(np.uint8)
        rows[:, :flat.shape[1]] = flat
        return self.try_image(image, self.buffer(rows))[0]

    def program(self, text, options="-cl-std=CL1.2"):
        """The program and the status of its build."""
        words = (C.c_char_p * 1)(text.encode())
        program = self.make("ProgramWithSource", self.context, 1, words, None)
        return program, self.call("clBuildProgram", program, 1, C.byref(self.device), options.encode(), None, None)

    def kernel(self, text, name="k", options="-cl-std=CL1.2"):
        program, status = self.program(text, options)
        if status != 0:
            raise Failure(f"clBuildProgram: status {status}")
        return self.make("Kernel", program, name.encode())

    def set(self, kernel, index, value):
        if isinstance(value, Local):
            return self.call("clSetKernelArg", kernel, index, C.c_size_t(value), None)
        if isinstance(value, C.c_void_p):
            return self.call("clSetKernelArg", kernel, index, C.c_size_t(8), C.byref(value))
        value = np.asarray(value)
        return self.call("clSetKernelArg", kernel, index, C.c_size_t(value.nbytes), address(value))

    def enqueue(self, kernel, size, block=None, event=None):
        return self.call("clEnqueueNDRangeKernel", self.queue, kernel, len(size), None, sizes(size), sizes(block) if block else None, 0,
                         None, C.byref(event) if event is not None else None)

    def finish(self):
        return self.call("clFinish", self.queue)

    def write(self, buffer, array, blocks=1, at=0):
        return self.call("clEnqueueWriteBuffer", self.queue, buffer, blocks, C.c_size_t(at), C.c_size_t(array.nbytes), address(array), 0,
                         None, None)

    def read(self, buffer, array, blocks=1, at=0):
        return self.call("clEnqueueReadBuffer", self.queue, buffer, blocks, C.c_size_t(at), C.c_size_t(array.nbytes), address(array), 0,
                         None, None)

    def run(self, text, arguments, size, block=None):
        """One launch of the text's kernel k; arrays that are no constants of NumPy's are buffers, or images. The status of the wait."""
        kernel, places = self.kernel(text), []
        for index, value in enumerate(arguments):
            if isinstance(value, Image):
                value = self.image(value)
            elif isinstance(value, np.ndarray) and value.ndim:
                places.append((value, self.buffer(value)))
                value = places[-1][1]
            if self.set(kernel, index, value) != 0:
                raise Failure(f"argument {index} cannot be set")
        if self.enqueue(kernel, size, block) != 0:
            raise Failure("the kernel cannot be enqueued")
        status = self.finish()
        for array, buffer in places if status == 0 else ():
            self.must("clEnqueueReadBuffer", self.queue, buffer, 1, C.c_size_t(0), C.c_size_t(array.nbytes), address(array), 0, None, None)
        return status
