# Finds LibTorch and makes reprise::torch of it: the one place that knows how LibTorch's own package behaves. It is installed
# too, so that find_package(reprise COMPONENTS libtorch) goes the same way.
#
# Sets  reprise_torch_version, reprise_torch_prefix   what was found
#       reprise_torch_old_abi                         whether it was built with the C++ ABI from before 2011
#       reprise_torch_problem                         why there is no reprise::torch, in one sentence
#
# What it gets along with:
#
#   a CUDA build where its package cannot be loaded     the package insists on a whole CUDA toolkit and ends the configuration where
#   (no toolkit, another one, half of one)              there is none. Reprise's CPU side needs none: the CPU half is used, past it
#   CUDA 12.9 and later                                 have no nvToolsExt any more, for which LibTorch's packages up to 2.6 ask
#   builds with the C++ ABI from before 2011            (PyPI's up to 2.6) everything that links them is compiled with it
#   versions before 2.4                                 are refused here, not by a hundred lines of the compiler's
#   the packages of vcpkg and Conan                     the one lies in share/torch, the other names its targets in TORCH_LIBRARIES

set(reprise_torch_version "")
set(reprise_torch_prefix "")
set(reprise_torch_old_abi OFF)
set(reprise_torch_problem "")

# Only where it is: loading it may be an error. Torch_DIR first, as find_package takes it: what is looked at is what is loaded.
if(EXISTS "${Torch_DIR}/TorchConfig.cmake")
  set(reprise_torch_config_dir "${Torch_DIR}")
else()
  find_path(reprise_torch_config_dir TorchConfig.cmake
    HINTS ${Torch_ROOT} ENV Torch_ROOT ENV Torch_DIR
    PATH_SUFFIXES share/cmake/Torch share/torch lib/cmake/Torch lib/${CMAKE_LIBRARY_ARCHITECTURE}/cmake/Torch Torch
    NO_CACHE)
endif()
string(REGEX REPLACE "/$" "" reprise_torch_config_dir "${reprise_torch_config_dir}")  # find_path may leave one
if(NOT reprise_torch_config_dir)
  set(reprise_torch_problem "no TorchConfig.cmake was found; put LibTorch's folder into CMAKE_PREFIX_PATH")
  return()
endif()

foreach(up IN ITEMS ../.. ../../.. ../../../..)
  get_filename_component(reprise_torch_prefix "${reprise_torch_config_dir}/${up}" ABSOLUTE)
  if(EXISTS "${reprise_torch_prefix}/include/ATen")
    break()
  endif()
endforeach()

function(reprise_read_torch_version)
  unset(PACKAGE_VERSION)  # the including project's own
  include("${reprise_torch_config_dir}/TorchConfigVersion.cmake" OPTIONAL)
  set(reprise_torch_version "${PACKAGE_VERSION}" PARENT_SCOPE)
endfunction()
reprise_read_torch_version()
if(reprise_torch_version AND reprise_torch_version VERSION_LESS 2.4)  # its storages cannot be emptied and filled again
  set(reprise_torch_problem "version ${reprise_torch_version} in ${reprise_torch_prefix} is too old; 2.4 is the oldest that works")
  return()
endif()

file(STRINGS "${reprise_torch_config_dir}/TorchConfig.cmake" reprise_torch_abi_lines REGEX "_GLIBCXX_USE_CXX11_ABI=0")
if(reprise_torch_abi_lines)
  set(reprise_torch_old_abi ON)
endif()

# --- A CUDA build -----------------------------------------------------------------------------------------------------

# Its package, and what it asks for in vain; in a file, since it is tried in a project of its own first.
set(reprise_torch_load [[
if(reprise_torch_has_cuda)
  find_package(CUDAToolkit QUIET)
  if(CUDAToolkit_FOUND AND NOT TARGET CUDA::nvToolsExt)
    add_library(CUDA::nvToolsExt INTERFACE IMPORTED)
    if(TARGET CUDA::nvtx3)
      target_link_libraries(CUDA::nvToolsExt INTERFACE CUDA::nvtx3)
    endif()
  endif()
endif()
find_package(Torch CONFIG QUIET PATHS "${reprise_torch_config_dir}" NO_DEFAULT_PATH)
list(FILTER TORCH_LIBRARIES EXCLUDE REGEX "-NOTFOUND$")
]])

# Sets REPRISE_TORCH_PACKAGE_LOADS, once per build folder and LibTorch.
function(reprise_try_torch_package)
  if("${REPRISE_TORCH_PACKAGE_TRIED}" STREQUAL "${reprise_torch_config_dir}")
    return()
  endif()
  set(folder "${CMAKE_BINARY_DIR}/CMakeFiles/reprise_torch")
  file(REMOVE_RECURSE "${folder}")
  file(WRITE "${folder}/CMakeLists.txt" "cmake_minimum_required(VERSION 3.25)\nproject(try CXX)\n"
    "set(reprise_torch_has_cuda ON)\nset(reprise_torch_config_dir \"${reprise_torch_config_dir}\")\n${reprise_torch_load}"
    "add_executable(try try.cpp)\ntarget_link_libraries(try \${TORCH_LIBRARIES})\n")
  file(WRITE "${folder}/try.cpp" "int main() {}\n")
  set(options -G "${CMAKE_GENERATOR}" "-DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}")
  foreach(name IN ITEMS CMAKE_MAKE_PROGRAM CMAKE_PREFIX_PATH CMAKE_MODULE_PATH CUDAToolkit_ROOT CUDA_TOOLKIT_ROOT_DIR
          CMAKE_CUDA_COMPILER CMAKE_CUDA_ARCHITECTURES)
    if(NOT "${${name}}" STREQUAL "")
      string(REPLACE ";" "\\;" value "${${name}}")
      list(APPEND options "-D${name}=${value}")
    endif()
  endforeach()
  set(said OUTPUT_VARIABLE said_out ERROR_VARIABLE said_out RESULT_VARIABLE result)
  execute_process(COMMAND "${CMAKE_COMMAND}" -S "${folder}" -B "${folder}/build" ${options} ${said})
  set(loads OFF)
  if(result EQUAL 0)
    execute_process(COMMAND "${CMAKE_COMMAND}" --build "${folder}/build" ${said})
    if(result EQUAL 0)
      set(loads ON)
    endif()
  endif()
  file(WRITE "${folder}/said.txt" "${said_out}")
  set(REPRISE_TORCH_PACKAGE_LOADS ${loads} CACHE INTERNAL "whether it could be loaded")
  set(REPRISE_TORCH_PACKAGE_TRIED "${reprise_torch_config_dir}" CACHE INTERNAL "LibTorch whose package was tried")
endfunction()

set(reprise_torch_has_cuda OFF)
if(EXISTS "${reprise_torch_prefix}/lib/libtorch_cuda.so")
  set(reprise_torch_has_cuda ON)
  reprise_try_torch_package()
endif()

if(reprise_torch_has_cuda AND NOT REPRISE_TORCH_PACKAGE_LOADS)
  message(STATUS "LibTorch in ${reprise_torch_prefix} is a CUDA build, and the CUDA toolkit that it asks for is not here: using its CPU half")
  if(NOT TARGET reprise::torch)
    add_library(reprise::torch INTERFACE IMPORTED)
    target_include_directories(reprise::torch INTERFACE
      "${reprise_torch_prefix}/include" "${reprise_torch_prefix}/include/torch/csrc/api/include")
    # torch_cpu registers its kernels when it is loaded: it must stay even where no symbol of it is named.
    target_link_libraries(reprise::torch INTERFACE
      "-Wl,--no-as-needed,\"${reprise_torch_prefix}/lib/libtorch_cpu.so\"" "-Wl,--as-needed" "${reprise_torch_prefix}/lib/libc10.so")
    # The CUDA runtime that torch_cpu itself needs comes with Python packages, where only the loader finds it.
    target_link_options(reprise::torch INTERFACE "-Wl,--allow-shlib-undefined" "-Wl,-rpath,${reprise_torch_prefix}/lib")
    if(reprise_torch_old_abi)
      target_compile_definitions(reprise::torch INTERFACE _GLIBCXX_USE_CXX11_ABI=0)
    endif()
  endif()
  return()
endif()

# --- Its own package --------------------------------------------------------------------------------------------------

# It warns about what a program that links it never needs (kineto, MKL): not shown.
set(reprise_message_level "${CMAKE_MESSAGE_LOG_LEVEL}")
set(CMAKE_MESSAGE_LOG_LEVEL ERROR)
cmake_language(EVAL CODE "${reprise_torch_load}")
set(CMAKE_MESSAGE_LOG_LEVEL "${reprise_message_level}")
if(NOT Torch_FOUND)
  set(reprise_torch_problem "the package in ${reprise_torch_config_dir} cannot be used: ${Torch_NOT_FOUND_MESSAGE}")
  return()
endif()
set(reprise_torch_version "${Torch_VERSION}")

if(NOT TARGET reprise::torch)
  # TORCH_CXX_FLAGS (the C++ ABI of old builds) is already an interface option of the target torch.
  add_library(reprise::torch INTERFACE IMPORTED)
  target_link_libraries(reprise::torch INTERFACE ${TORCH_LIBRARIES})
endif()
