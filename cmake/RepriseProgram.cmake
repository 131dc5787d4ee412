# How Reprise's own tests, examples and benchmarks are compiled. Nothing here touches the library's targets or its users.

# Warnings for our own code. What comes from LibTorch, Boost, range-v3, nlohmann_json and Catch2 is reached through imported
# targets, whose headers are system headers.
add_library(reprise_warnings INTERFACE)
if(CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
  target_compile_options(reprise_warnings INTERFACE
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion
    $<$<BOOL:${REPRISE_WARNINGS_AS_ERRORS}>:-Werror>)
endif()
# What g++ concludes from optimised code is sometimes not so (12 sees "a" + std::to_string(i) copy half the address space): these
# stay warnings.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND REPRISE_WARNINGS_AS_ERRORS)
  target_compile_options(reprise_warnings INTERFACE
    -Wno-error=restrict -Wno-error=stringop-overflow -Wno-error=stringop-overread -Wno-error=array-bounds -Wno-error=maybe-uninitialized)
endif()
# GCC 12 warns about "text" + std::string itself (its bug 105651, mended in 13).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 12 AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(reprise_warnings INTERFACE -Wno-restrict)
endif()
set(CMAKE_CXX_EXTENSIONS OFF)

# torch/torch.h costs 20 to 35 seconds a file and our own headers another 7 to 14: they are compiled once, for all programs that use
# LibTorch.
if(REPRISE_HAS_LIBTORCH)
  add_custom_target(libtorch_programs)  # all of them, and nothing that the preset core builds too
  option(REPRISE_PCH "Share one precompiled header among tests, examples and benchmarks" ON)
  # While headers of Reprise change, -DREPRISE_PCH_HEADERS=<torch/torch.h> alone: it is then compiled once and for all.
  set(REPRISE_PCH_HEADERS "<torch/torch.h>;<reprise/libtorch.hpp>" CACHE STRING "What is in the precompiled header")
  if(REPRISE_PCH)
    set(pch_source "${CMAKE_CURRENT_BINARY_DIR}/reprise_torch_pch.cpp")
    file(CONFIGURE OUTPUT "${pch_source}" CONTENT "// Its precompiled header is what this is for.\n" @ONLY)
    add_library(reprise_torch_pch OBJECT EXCLUDE_FROM_ALL "${pch_source}")
    target_link_libraries(reprise_torch_pch PRIVATE reprise_libtorch reprise_warnings)
    target_precompile_headers(reprise_torch_pch PRIVATE ${REPRISE_PCH_HEADERS})
  endif()
endif()

function(reprise_compile_as_our_own name libtorch)
  target_link_libraries(${name} PRIVATE reprise_warnings)
  if(NOT libtorch)
    target_link_libraries(${name} PUBLIC reprise::reprise)
    return()
  endif()
  target_link_libraries(${name} PUBLIC reprise::libtorch)
  add_dependencies(libtorch_programs ${name})
  if(REPRISE_PCH)
    target_precompile_headers(${name} REUSE_FROM reprise_torch_pch)
  endif()
endfunction()

# reprise_add_program(<name> [LIBTORCH] SOURCES <file>... [LIBRARIES <target>...])
function(reprise_add_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "LIBTORCH" "" "SOURCES;LIBRARIES")
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES})
  reprise_compile_as_our_own(${name} ${arg_LIBTORCH})
endfunction()

# reprise_add_library(<name> [LIBTORCH] SOURCES <file>...): code that several programs share
function(reprise_add_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "LIBTORCH" "" "SOURCES")
  add_library(${name} STATIC ${arg_SOURCES})
  reprise_compile_as_our_own(${name} ${arg_LIBTORCH})
endfunction()
