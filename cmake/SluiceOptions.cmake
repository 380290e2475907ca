# Build-wide settings. Everything a user may change is a cache variable with its meaning beside it.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")

set(SLUICE_VENV ${CMAKE_SOURCE_DIR}/.venv CACHE PATH "Python environment made by tools/setup.sh; it holds LibTorch, Arrow and nvcc")
set(SLUICE_CPU_ARCH x86-64-v3 CACHE STRING "-march of the CPU kernels (AVX2 and FMA by default); empty for the compiler's own default")
option(SLUICE_WERROR "Treat compiler warnings as errors" OFF)
set(SLUICE_CUDA_ARCHITECTURES 90a CACHE STRING "GPU architectures to compile kernels for (90a: H100 and H200)")
set(SLUICE_SANITIZE "" CACHE STRING "Sanitizers to build with: address,undefined or thread")

# Designated initialisers leave fields out on purpose: their defaults stand in the struct.
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wno-unused-parameter;-Wno-missing-field-initializers>")
# GCC 13 takes a reference out of a handle that is passed by value (a shared value, a span) for a dangling one.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wno-dangling-reference>")
endif()
if(SLUICE_WERROR)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Werror>")
endif()
if(SLUICE_SANITIZE)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${SLUICE_SANITIZE};-fno-omit-frame-pointer;-g1>")
  add_link_options(-fsanitize=${SLUICE_SANITIZE})
endif()

find_program(SLUICE_CCACHE ccache)
if(SLUICE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${SLUICE_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${SLUICE_CCACHE})
endif()
find_program(SLUICE_MOLD mold)
if(SLUICE_MOLD)
  add_link_options(-fuse-ld=mold)
endif()
