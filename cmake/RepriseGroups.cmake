# Compiling several sources of one program together. Reprise is headers alone, so that compiling a test is mostly compiling Reprise, again for
# each file: clang++ -O0 takes 2.4 to 8.9 s for one file of the core's tests, and 18 s for twenty together.
#
#   reprise_group_sources(<variable> <files a group> <file>...)   a group's source first includes what its files include, then each of
#                                                                 them, in a namespace of its own, so that names do not meet:
#
#     #include <reprise/graph/builder.hpp>
#     #include <reprise_test/catch.hpp>
#     namespace reprise_group_graph_builder_cpp {
#     #include "<source>/test/graph/builder.cpp"
#     }
#
# For builds that are made once, as in CI: where one file changes, its whole group is compiled. A file that includes something that
# must be read in its place (a .inc) or under a condition stays out: it is given back as it is.

function(reprise_group_sources variable size)
  if(size LESS 2)
    set(${variable} ${ARGN} PARENT_SCOPE)
    return()
  endif()
  set(sources "")
  set(files "")
  foreach(file IN LISTS ARGN)
    set(path "${CMAKE_CURRENT_SOURCE_DIR}/${file}")
    file(STRINGS "${path}" lines REGEX "^#(include|if)")
    if(lines MATCHES "#if[^;]*;#include|\\.inc\"")
      list(APPEND sources "${file}")
      continue()
    endif()
    list(APPEND files "${path}")
    list(LENGTH files length)
    if(length EQUAL size)
      reprise_write_group(sources ${variable} ${files})
      set(files "")
    endif()
  endforeach()
  if(files)
    reprise_write_group(sources ${variable} ${files})
  endif()
  set(${variable} ${sources} PARENT_SCOPE)
endfunction()

# reprise_write_group(<list of sources to append to> <name> <path>...)
function(reprise_write_group list_name name)
  set(includes "")
  set(bodies "")
  foreach(path IN LISTS ARGN)
    file(STRINGS "${path}" found REGEX "^#include ")
    list(APPEND includes ${found})
    file(RELATIVE_PATH file "${CMAKE_CURRENT_SOURCE_DIR}" "${path}")
    string(MAKE_C_IDENTIFIER "${file}" file)
    string(APPEND bodies "namespace reprise_group_${file} {\n#include \"${path}\"\n}\n")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${path}")
  endforeach()
  list(REMOVE_DUPLICATES includes)
  set(last ${includes})  # LibTorch before Catch2: CHECK is also a macro of its own
  list(FILTER includes EXCLUDE REGEX "<reprise_test/")
  list(FILTER last INCLUDE REGEX "<reprise_test/")
  list(APPEND includes ${last} "")
  list(JOIN includes "\n" includes)
  list(LENGTH ${list_name} index)
  set(group "${CMAKE_CURRENT_BINARY_DIR}/${name}_${index}.cpp")
  file(CONFIGURE OUTPUT "${group}" CONTENT "${includes}${bodies}" @ONLY)
  set(${list_name} ${${list_name}} "${group}" PARENT_SCOPE)
endfunction()
