# Makes reprise_nanobench, where nanobench is installed or may be downloaded; without it the micro-benchmarks are left out.
# A benchmark includes <nanobench.h> and nothing else: the library brings nanobench's own code.

find_package(nanobench CONFIG QUIET)
find_path(REPRISE_NANOBENCH_INCLUDE_DIR nanobench.h PATH_SUFFIXES nanobench DOC "Folder of nanobench.h")
if(TARGET nanobench::nanobench)
  add_library(reprise_nanobench INTERFACE)
  target_link_libraries(reprise_nanobench INTERFACE nanobench::nanobench)
elseif(REPRISE_NANOBENCH_INCLUDE_DIR)
  set(nanobench_source "${CMAKE_CURRENT_BINARY_DIR}/nanobench.cpp")
  file(CONFIGURE OUTPUT "${nanobench_source}" CONTENT "#define ANKERL_NANOBENCH_IMPLEMENT\n#include <nanobench.h>\n" @ONLY)
  add_library(reprise_nanobench STATIC EXCLUDE_FROM_ALL "${nanobench_source}")
  target_include_directories(reprise_nanobench SYSTEM PUBLIC "${REPRISE_NANOBENCH_INCLUDE_DIR}")
elseif(REPRISE_FETCH_NANOBENCH)
  include(FetchContent)
  FetchContent_Declare(nanobench GIT_REPOSITORY https://github.com/martinus/nanobench.git GIT_TAG v4.3.11 GIT_SHALLOW TRUE SYSTEM)
  FetchContent_MakeAvailable(nanobench)
  add_library(reprise_nanobench INTERFACE)
  target_link_libraries(reprise_nanobench INTERFACE nanobench)
else()
  message(STATUS "nanobench was not found: no micro-benchmarks. -DREPRISE_FETCH_NANOBENCH=ON downloads it; or have "
    "https://github.com/martinus/nanobench somewhere and name the folder of its nanobench.h: -DREPRISE_NANOBENCH_INCLUDE_DIR=<folder>")
endif()
