# Third-party libraries as imported targets. System packages come from apt; LibTorch and Arrow come from the wheels in
# the project's Python environment, so that a machine needs nothing from NVIDIA but a driver, and that only to run on a GPU.

find_package(Threads REQUIRED)
find_package(Protobuf REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(spdlog CONFIG REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED)
find_package(yaml-cpp CONFIG REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(GTest CONFIG REQUIRED)
find_package(benchmark CONFIG REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
find_program(SLUICE_GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)

file(GLOB SLUICE_SITE_PACKAGES ${SLUICE_VENV}/lib/python3.*/site-packages)
if(NOT EXISTS "${SLUICE_SITE_PACKAGES}/torch/lib/libtorch_cpu.so")
  message(FATAL_ERROR "No LibTorch in ${SLUICE_VENV}. Run tools/setup.sh first, or point SLUICE_VENV at an environment it made.")
endif()

# nvcc, from the environment's wheels like everything of NVIDIA's: no toolkit is looked for on the machine.
set(CMAKE_CUDA_COMPILER ${SLUICE_SITE_PACKAGES}/nvidia/cu13/bin/nvcc)
set(CMAKE_CUDA_ARCHITECTURES ${SLUICE_CUDA_ARCHITECTURES})
set(CMAKE_CUDA_RUNTIME_LIBRARY None)  # LibTorch's shared one is linked
# nvcc looks for its libraries in lib64, the wheel has them in lib; newer CMake links a program to identify the compiler.
set(CMAKE_CUDA_FLAGS "--expt-relaxed-constexpr -L${SLUICE_SITE_PACKAGES}/nvidia/cu13/lib")
set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -DNDEBUG")
enable_language(CUDA)
# CMake 3.25 does not know how this nvcc is asked for C++20.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_EXTENSIONS OFF)

# LibTorch with its Gloo process group. Gloo's headers are not in the wheel; engine/comm/gloo_abi declares the five that
# c10d's ProcessGroupGloo.hpp includes. Never link a system libgloo: its symbols collide with libtorch_cpu's.
add_library(sluice_torch INTERFACE)
# torch/include carries headers of an old protobuf: it is searched last (-idirafter), so that the system's are found first.
target_compile_options(sluice_torch INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-idirafter ${SLUICE_SITE_PACKAGES}/torch/include>"
  "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-idirafter ${SLUICE_SITE_PACKAGES}/torch/include/torch/csrc/api/include>")
target_include_directories(sluice_torch SYSTEM INTERFACE
  ${SLUICE_SITE_PACKAGES}/nvidia/cu13/include
  ${SLUICE_SITE_PACKAGES}/nvidia/nccl/include
  ${CMAKE_SOURCE_DIR}/engine/comm/gloo_abi)
target_compile_definitions(sluice_torch INTERFACE USE_C10D_GLOO USE_C10D_NCCL)
file(GLOB SLUICE_CUDART ${SLUICE_SITE_PACKAGES}/nvidia/cu13/lib/libcudart.so.13)
# libtorch.so exports part of a libstdc++ of its own (std::filesystem among it, without all it calls): ours must be found first.
target_link_libraries(sluice_torch INTERFACE
  -Wl,--no-as-needed
  stdc++
  ${SLUICE_SITE_PACKAGES}/torch/lib/libtorch.so
  ${SLUICE_SITE_PACKAGES}/torch/lib/libtorch_cpu.so
  ${SLUICE_SITE_PACKAGES}/torch/lib/libtorch_cuda.so
  ${SLUICE_SITE_PACKAGES}/torch/lib/libc10.so
  ${SLUICE_SITE_PACKAGES}/torch/lib/libc10_cuda.so
  ${SLUICE_CUDART}
  -Wl,--as-needed)

# cuBLASLt and cuDNN, the same files that LibTorch loads, and the header-only front end of cuDNN.
add_library(sluice_cuda INTERFACE)
target_include_directories(sluice_cuda SYSTEM INTERFACE
  ${SLUICE_SITE_PACKAGES}/nvidia/cu13/include ${SLUICE_SITE_PACKAGES}/nvidia/cudnn/include ${SLUICE_SITE_PACKAGES}/include)
target_link_libraries(sluice_cuda INTERFACE
  ${SLUICE_SITE_PACKAGES}/nvidia/cu13/lib/libcublasLt.so.13
  ${SLUICE_SITE_PACKAGES}/nvidia/cudnn/lib/libcudnn.so.9
  ${SLUICE_SITE_PACKAGES}/nvidia/cu13/lib/libnvrtc.so.13
  ${SLUICE_CUDART})

# The NCCL that LibTorch loads too.
add_library(sluice_nccl INTERFACE)
target_include_directories(sluice_nccl SYSTEM INTERFACE
  ${SLUICE_SITE_PACKAGES}/nvidia/cu13/include ${SLUICE_SITE_PACKAGES}/nvidia/nccl/include)
target_link_libraries(sluice_nccl INTERFACE ${SLUICE_SITE_PACKAGES}/nvidia/nccl/lib/libnccl.so.2 ${SLUICE_CUDART})

# Timing of single kernels, for sluice-bench.
add_library(sluice_cupti INTERFACE)
target_link_libraries(sluice_cupti INTERFACE sluice_cuda ${SLUICE_SITE_PACKAGES}/nvidia/cu13/lib/libcupti.so.13)

add_library(sluice_arrow INTERFACE)
target_include_directories(sluice_arrow SYSTEM INTERFACE ${SLUICE_SITE_PACKAGES}/pyarrow/include)
target_link_libraries(sluice_arrow INTERFACE
  ${SLUICE_SITE_PACKAGES}/pyarrow/libarrow.so.2500
  ${SLUICE_SITE_PACKAGES}/pyarrow/libparquet.so.2500)

# gRPC with protobuf, for the folders that speak the API.
add_library(sluice_grpc INTERFACE)
target_link_libraries(sluice_grpc INTERFACE gRPC::grpc++ protobuf::libprotobuf)
