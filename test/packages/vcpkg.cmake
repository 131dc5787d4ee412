# Runs the overlay port's portfile as vcpkg would, and holds the result against what vcpkg asks of a port. vcpkg itself downloads
# what it is made of; the functions below do what its documentation says of them, as far as a header-only port uses them.
#
#   cmake -D SOURCE_DIR=<Reprise> -D WORK_DIR=<scratch> -P test/packages/vcpkg.cmake
#
# The package is then in WORK_DIR/installed/x64-linux.

cmake_minimum_required(VERSION 3.25)

set(PORT reprise)
set(TARGET_TRIPLET x64-linux)
set(CURRENT_PORT_DIR "${SOURCE_DIR}/packaging/vcpkg/reprise")
set(CURRENT_BUILDTREES_DIR "${WORK_DIR}/buildtrees/reprise")
set(CURRENT_PACKAGES_DIR "${WORK_DIR}/packages/reprise_x64-linux")
set(CURRENT_INSTALLED_DIR "${WORK_DIR}/installed/x64-linux")
set(manifest "${CURRENT_PORT_DIR}/vcpkg.json")
file(REMOVE_RECURSE "${WORK_DIR}/buildtrees" "${WORK_DIR}/packages" "${WORK_DIR}/installed")

# --- What a portfile calls --------------------------------------------------------------------------------------------

function(vcpkg_cmake_configure)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "SOURCE_PATH" "OPTIONS")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_SOURCE_PATH)
    message(FATAL_ERROR "vcpkg_cmake_configure: SOURCE_PATH is missing, or what is not known here was passed: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  execute_process(COMMAND ${CMAKE_COMMAND} -S "${arg_SOURCE_PATH}" -B "${CURRENT_BUILDTREES_DIR}/${TARGET_TRIPLET}-rel" -G Ninja
    -DCMAKE_BUILD_TYPE=Release "-DCMAKE_INSTALL_PREFIX=${CURRENT_PACKAGES_DIR}" -DBUILD_SHARED_LIBS=OFF
    -DCMAKE_INSTALL_LIBDIR:STRING=lib -DCMAKE_INSTALL_BINDIR:STRING=bin -DCMAKE_EXPORT_NO_PACKAGE_REGISTRY=ON
    -DCMAKE_FIND_PACKAGE_NO_PACKAGE_REGISTRY=ON -DCMAKE_FIND_PACKAGE_NO_SYSTEM_PACKAGE_REGISTRY=ON
    -DCMAKE_ERROR_ON_ABSOLUTE_INSTALL_DESTINATION=ON -DCMAKE_INSTALL_SYSTEM_RUNTIME_LIBS_SKIP=TRUE -DCMAKE_DISABLE_SOURCE_CHANGES=ON
    -DFETCHCONTENT_FULLY_DISCONNECTED=ON ${arg_OPTIONS}
    OUTPUT_VARIABLE said ERROR_VARIABLE said RESULT_VARIABLE result)
  if(result)
    message(FATAL_ERROR "${said}")
  endif()
  # vcpkg says so too: an option that the project does not know is a mistake of the port.
  if(said MATCHES "Manually-specified variables were not used by the project:([^-]*)")
    foreach(option IN LISTS arg_OPTIONS)
      string(REGEX REPLACE "^-D([^=:]*).*" "\\1" name "${option}")
      if(CMAKE_MATCH_1 AND said MATCHES "\n +${name}\n")
        message(FATAL_ERROR "the portfile sets ${name}, which the project does not use")
      endif()
    endforeach()
  endif()
endfunction()

function(vcpkg_cmake_install)
  execute_process(COMMAND ${CMAKE_COMMAND} --build "${CURRENT_BUILDTREES_DIR}/${TARGET_TRIPLET}-rel" --target install
    OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# Moves the CMake package to share/<port> and corrects the way from there to the prefix.
function(vcpkg_cmake_config_fixup)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "PACKAGE_NAME;CONFIG_PATH" "")
  if(NOT VCPKG_BUILD_TYPE STREQUAL "release")
    message(FATAL_ERROR "the port is not marked as header-only: vcpkg would look for a debug build")
  endif()
  if(NOT IS_DIRECTORY "${CURRENT_PACKAGES_DIR}/${arg_CONFIG_PATH}")
    message(FATAL_ERROR "vcpkg_cmake_config_fixup: there is no ${arg_CONFIG_PATH}")
  endif()
  file(GLOB files "${CURRENT_PACKAGES_DIR}/${arg_CONFIG_PATH}/*")
  file(COPY ${files} DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
  get_filename_component(parent "${CURRENT_PACKAGES_DIR}/${arg_CONFIG_PATH}" DIRECTORY)
  file(REMOVE_RECURSE "${parent}")
  file(GLOB_RECURSE files "${CURRENT_PACKAGES_DIR}/share/${PORT}/*.cmake")
  foreach(file IN LISTS files)
    file(READ "${file}" text)
    set(up "get_filename_component(_IMPORT_PREFIX \"\${_IMPORT_PREFIX}\" PATH)")
    string(REPLACE "${up}\n${up}\n${up}\n" "${up}\n${up}\n" text "${text}")
    string(REGEX REPLACE "(PACKAGE_PREFIX_DIR \"\\\${CMAKE_CURRENT_LIST_DIR})/(\\.\\./)+(\" ABSOLUTE)" "\\1/../../\\3" text "${text}")
    string(REPLACE "${CURRENT_PACKAGES_DIR}" "\${_IMPORT_PREFIX}" text "${text}")
    file(WRITE "${file}" "${text}")
  endforeach()
endfunction()

function(vcpkg_install_copyright)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "COMMENT" "FILE_LIST")
  file(INSTALL ${arg_FILE_LIST} DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}" RENAME copyright)
endfunction()

include("${CURRENT_PORT_DIR}/portfile.cmake")

# --- What vcpkg looks at afterwards -----------------------------------------------------------------------------------

function(rule text)  # then a condition, in which variables are named, not expanded
  if(NOT (${ARGN}))
    message(SEND_ERROR "vcpkg's rule: ${text}")
  endif()
endfunction()

set(package "${CURRENT_PACKAGES_DIR}")
file(GLOB_RECURSE everything LIST_DIRECTORIES true RELATIVE "${package}" "${package}/*")
file(GLOB top RELATIVE "${package}" "${package}/*")
list(JOIN top " and " top)
file(GLOB_RECURSE headers "${package}/include/*.hpp")
set(outside ${everything})
list(FILTER outside INCLUDE REGEX "\\.cmake$")
list(FILTER outside EXCLUDE REGEX "^share/reprise/")

rule("a header-only port has no lib, bin or debug folder: found ${top}" top STREQUAL "include and share")
rule("headers are in include" headers)
rule("the license is share/reprise/copyright" EXISTS "${package}/share/reprise/copyright")
rule("share/reprise/usage says how to use it" EXISTS "${package}/share/reprise/usage")
rule("the CMake package is in share/reprise" EXISTS "${package}/share/reprise/reprise-config.cmake")
rule("CMake files are nowhere else: found ${outside}" NOT outside)
foreach(entry IN LISTS everything)
  if(IS_DIRECTORY "${package}/${entry}")
    file(GLOB inside "${package}/${entry}/*")
    rule("no empty folder: ${entry}" inside)
  else()
    file(READ "${package}/${entry}" text)
    foreach(path IN ITEMS "${CURRENT_PACKAGES_DIR}" "${CURRENT_BUILDTREES_DIR}" "${CURRENT_INSTALLED_DIR}" "${SOURCE_DIR}")
      string(FIND "${text}" "${path}" place)
      rule("no absolute paths: ${entry} names ${path}" place EQUAL -1)
    endforeach()
  endif()
endforeach()

file(READ "${package}/share/reprise/usage" usage)
file(READ "${manifest}" port_json)
file(READ "${SOURCE_DIR}/vcpkg.json" tree_json)
file(STRINGS "${SOURCE_DIR}/include/reprise/base/version.hpp" numbers REGEX "^#define REPRISE_VERSION_")
list(TRANSFORM numbers REPLACE "^.* " "")
list(JOIN numbers "." version)
string(JSON port_version GET "${port_json}" version)
string(JSON port_name GET "${port_json}" name)
string(JSON port_license GET "${port_json}" license)
string(JSON default_features ERROR_VARIABLE no_defaults GET "${port_json}" default-features)
string(JSON tree_defaults ERROR_VARIABLE no_tree_defaults GET "${tree_json}" default-features)
rule("the port's name is its folder's" port_name STREQUAL "reprise")
rule("the port's version ${port_version} is that of version.hpp, ${version}" port_version STREQUAL version)
rule("the license is an SPDX expression" port_license STREQUAL "Apache-2.0")
rule("no default features" no_defaults AND no_tree_defaults)
rule("usage names both targets" usage MATCHES "reprise::reprise" AND usage MATCHES "reprise::libtorch")
foreach(feature IN ITEMS libtorch tests bench)
  string(JSON description ERROR_VARIABLE missing GET "${tree_json}" features ${feature} description)
  rule("vcpkg.json has the feature ${feature}" NOT missing)
endforeach()
# What the port depends on is what the tree's manifest depends on, and the two helpers that the portfile calls.
function(names_of json variable)
  string(JSON count LENGTH "${json}" dependencies)
  math(EXPR last "${count} - 1")
  set(names "")
  foreach(i RANGE ${last})
    string(JSON name ERROR_VARIABLE plain GET "${json}" dependencies ${i} name)
    if(plain)
      string(JSON name GET "${json}" dependencies ${i})
    endif()
    list(APPEND names "${name}")
  endforeach()
  set(${variable} "${names}" PARENT_SCOPE)
endfunction()
names_of("${port_json}" port_dependencies)
names_of("${tree_json}" tree_dependencies)
list(REMOVE_ITEM port_dependencies vcpkg-cmake vcpkg-cmake-config)
rule("port and tree depend on the same: ${port_dependencies} and ${tree_dependencies}"
  port_dependencies STREQUAL tree_dependencies)

file(COPY "${package}/" DESTINATION "${CURRENT_INSTALLED_DIR}")
