# The three kinds of target in this tree.

if(SLUICE_SANITIZE STREQUAL "thread")
  # protobuf's messages have another layout where this is defined, and the system's library was built without it.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-U__SANITIZE_THREAD__>)
  # First among all libraries, so that its functions come before Abseil's.
  add_library(sluice_tsan_mutex SHARED ${CMAKE_CURRENT_LIST_DIR}/tsan_mutex.cc)
  target_link_libraries(sluice_tsan_mutex PRIVATE absl::synchronization ${CMAKE_DL_LIBS})
  link_libraries(sluice_tsan_mutex)
endif()

# sluice_library(NAME SRCS a.cc b.cc DEPS x y): a static library. Includes are written from the repository root.
function(sluice_library NAME)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_library(${NAME} STATIC ${ARG_SRCS})
  target_include_directories(${NAME} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(${NAME} PUBLIC ${ARG_DEPS})
endfunction()

# sluice_test(NAME SRCS a_test.cc DEPS x [LABELS gpu] [TIMEOUT s]): a GoogleTest program and its ctest entry of the same
# name. Tests run in the repository root, so that they name golden files by their path in the tree.
function(sluice_test NAME)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SRCS;DEPS;LABELS" ${ARGN})
  add_executable(${NAME} ${ARG_SRCS})
  target_include_directories(${NAME} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${NAME} PRIVATE ${ARG_DEPS} sluice_testing GTest::gtest GTest::gmock GTest::gtest_main)
  # A third of a build is tests, and a fifth of that is optimising what runs once.
  target_compile_options(${NAME} PRIVATE "$<$<CONFIG:Release>:-O1>")
  set_target_properties(${NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${NAME} COMMAND ${NAME} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(SLUICE_SANITIZE)
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 5")
  endif()
  set_tests_properties(${NAME} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()

# sluice_benchmark(NAME SRCS a_bench.cc DEPS x): a Google Benchmark program in build/bench. Not run by ctest.
function(sluice_benchmark NAME)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${NAME} ${ARG_SRCS})
  target_include_directories(${NAME} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${NAME} PRIVATE ${ARG_DEPS} benchmark::benchmark benchmark::benchmark_main)
  set_target_properties(${NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
endfunction()
