"""Whom bench/gpu.py compares with: PyTorch's functions, which call cuBLAS, cuBLASLt and cuDNN, attention by each of its back
ends, networks by torch.compile, ONNX Runtime and TensorRT where they are installed.

All run in the stream of the device, on the tensors that tgc's programs read, and as a CUDA graph where PyTorch can capture one:
tgc's runs are graphs, too. contenders() gives {name: function that enqueues run number i}, and why others are not among them.
"""

import functools
import warnings

import gpu_nets as nets


def reason(why):
    lines = str(why).strip().splitlines()
    return f"{type(why).__name__}: {lines[0] if lines else ''}"[:200]


class Peers:
    def __init__(self, device, work, quick=False):
        """quick: only those that are there at once."""
        self.device, self.torch, self.work, self.quick = device, device.torch, work, quick
        self.torch.backends.cudnn.benchmark = True
        self.torch.backends.cudnn.allow_tf32 = False
        warnings.filterwarnings("ignore")

    def graphed(self, function):
        """The function's kernels as one graph, which is replayed."""
        torch = self.torch
        for _ in range(3):
            function()
        self.device.wait()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.device.stream):
            held = function()
        return lambda: (graph.replay(), held)[0]

    def in_turns(self, functions):
        """Of one for each set of inputs: as graphs, or one by one if they cannot be captured."""
        try:
            runs = [self.graphed(function) for function in functions]
        except RuntimeError:
            self.device.wait()
            runs = functions
        return lambda i: runs[i % len(runs)]()

    def collect(self, wanted):
        """wanted: {name: function that makes a contender's run(i)}. Those that can be made, and why others cannot."""
        found, absent, nbytes = {}, {}, {}
        for name, make in wanted.items():
            free = self.device.free_bytes()
            try:
                with self.torch.no_grad():
                    found[name] = make()
                    found[name](0)
                    self.device.wait()
                nbytes[name] = free - self.device.free_bytes()
            except Exception as why:        # what another library cannot do is of every kind
                absent[name] = reason(why)
                found.pop(name, None)
        return found, absent, nbytes

    def contenders(self, case, instances, text):
        """({name: run(i)}, {name: why it is not there}, {name: bytes of the device that it has taken})"""
        return self.collect(getattr(self, f"of_{case.part}")(case, [instance.inputs for instance in instances], text))

    def reference(self, case, inputs, text):
        """{output: PyTorch's result}, products in the dtype of the tensors, sums in f32 at least."""
        with self.torch.no_grad():
            if case.part == "gemm":
                x, w = inputs["x"], inputs["w"]
                if case.fact("dtype") == "i8":
                    return {"y": (x.double() @ w.double().t()).float()}
                return {"y": x.float() @ w.float().t()}
            b = nets.Torch(self.torch, self.weights(text, "f32"), {name: value.float() if value.dtype.is_floating_point else value
                                                                   for name, value in inputs.items()})
            case.make(b)
            return b.results

    def weights(self, text, dtype):
        return {name: self.device.array(value, dtype) for name, value in text.weights.items()}

    # ------------------------------------------------------------------------------------ by part

    def of_gemm(self, case, inputs, text):
        torch, kind = self.torch, case.fact("dtype")
        reduced = case.dtype not in ("f32", "f16", "bf16", "i8", "f8")

        def by(function, tf32=False):
            def make():
                torch.backends.cuda.matmul.allow_tf32 = tf32
                run = self.in_turns([functools.partial(function, one["x"], one["w"]) for one in inputs])
                torch.backends.cuda.matmul.allow_tf32 = False
                return run
            return make
        if kind == "i8":
            return {"torch._int_mm": by(lambda x, w: torch._int_mm(x, w.t()))}
        if kind == "f8e4m3fn":
            def scaled(x, w, one):
                return torch._scaled_mm(x, w.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
            return {"torch._scaled_mm": lambda: by(functools.partial(scaled, one=torch.ones((), device="cuda")))()}
        return {f"torch.matmul{', tf32' if reduced else ''}": by(lambda x, w: torch.matmul(x, w.t()), reduced)}

    def of_conv(self, case, inputs, text):
        torch, weights = self.torch, self.weights(text, case.dtype)
        more = case.fact("stride"), case.fact("padding")

        def by(layout):
            w, b = weights["conv_w"].contiguous(memory_format=layout), weights["conv_b"]
            given = [one["x"].contiguous(memory_format=layout) for one in inputs]
            return self.in_turns([functools.partial(torch.nn.functional.conv2d, x, w, b, *more) for x in given])
        return {"cuDNN": lambda: by(torch.contiguous_format), "cuDNN, channels last": lambda: by(torch.channels_last)}

    def of_attention(self, case, inputs, text):
        def by(name):
            from torch.nn.attention import SDPBackend, sdpa_kernel

            def one_run(one):
                with sdpa_kernel(getattr(SDPBackend, name)):
                    return self.torch.nn.functional.scaled_dot_product_attention(one["q"], one["k"], one["v"], is_causal=case.fact("causal"))
            return self.in_turns([functools.partial(one_run, one) for one in inputs])
        return {f"SDPA {name.lower()}": functools.partial(by, name) for name in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH")}

    def of_models(self, case, inputs, text):
        torch, one = self.torch, inputs[0]
        weights = self.weights(text, case.dtype)

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                for name, value in weights.items():
                    self.register_buffer(name, value)

            def forward(self, *given):
                b = nets.Torch(torch, dict(self.named_buffers()), dict(zip(one, given)))
                case.make(b)
                return tuple(b.results.values())
        net, given = Net().eval(), list(one.values())

        def compiled():
            for value in given:
                torch._dynamo.mark_static_address(value)
            run = torch.compile(net, mode="reduce-overhead", fullgraph=True, dynamic=False)
            for _ in range(4):
                run(*given)
            return lambda i: run(*given)
        eager = {"PyTorch, graph": lambda: self.in_turns([lambda: net(*given)])}
        if self.quick:
            return eager
        return {**eager, "torch.compile": compiled, "ONNX Runtime": lambda: self.onnxruntime(net, one, case),
                "TensorRT": lambda: self.tensorrt(net, one, case)}

    # ------------------------------------------------------------------------------ from ONNX files

    def export(self, net, inputs, case):
        path = self.work / f"{''.join(c if c.isalnum() else '_' for c in case.name)}.onnx"
        if not path.exists():
            self.torch.onnx.export(net, tuple(inputs.values()), str(path), input_names=list(inputs), opset_version=17, dynamo=False)
        return path

    def onnxruntime(self, net, inputs, case):
        import onnxruntime
        if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
            raise RuntimeError("it has no CUDAExecutionProvider")
        options = {"user_compute_stream": str(self.device.stream_handle()), "enable_cuda_graph": "1", "use_tf32": "0"}
        session = onnxruntime.InferenceSession(str(self.export(net, inputs, case)), providers=[("CUDAExecutionProvider", options)])
        if session.get_providers()[0] != "CUDAExecutionProvider":
            raise RuntimeError("its CUDAExecutionProvider does not start")
        binding = session.io_binding()
        for name, value in inputs.items():
            kind = str(value.dtype).replace("torch.", "")
            binding.bind_input(name, "cuda", 0, kind, tuple(value.shape), value.data_ptr())
        for output in session.get_outputs():
            binding.bind_output(output.name, "cuda", 0)
        for _ in range(3):
            session.run_with_iobinding(binding)
        return lambda i: session.run_with_iobinding(binding)

    def tensorrt(self, net, inputs, case):
        import tensorrt
        logger = tensorrt.Logger(tensorrt.Logger.ERROR)
        builder = tensorrt.Builder(logger)
        flags = getattr(tensorrt.NetworkDefinitionCreationFlag, "EXPLICIT_BATCH", None)
        network = builder.create_network(1 << int(flags) if flags is not None else 0)
        parser = tensorrt.OnnxParser(network, logger)
        if not parser.parse_from_file(str(self.export(net, inputs, case))):
            raise RuntimeError(str(parser.get_error(0)))
        config = builder.create_builder_config()
        config.clear_flag(tensorrt.BuilderFlag.TF32)
        if case.dtype == "f16" and hasattr(tensorrt.BuilderFlag, "FP16"):
            config.set_flag(tensorrt.BuilderFlag.FP16)
        plan = builder.build_serialized_network(network, config)
        engine = tensorrt.Runtime(logger).deserialize_cuda_engine(plan)
        context, held = engine.create_execution_context(), []
        for k in range(engine.num_io_tensors):
            name = engine.get_tensor_name(k)
            if engine.get_tensor_mode(name) == tensorrt.TensorIOMode.INPUT:
                value = inputs[name]
            else:
                value = self.torch.empty(tuple(engine.get_tensor_shape(name)), dtype=self.device.dtypes[case.dtype], device="cuda")
            held.append(value)
            context.set_tensor_address(name, value.data_ptr())
        stream = self.device.stream_handle()
        return self.in_turns([lambda: (context.execute_async_v3(stream), held)[1]])
