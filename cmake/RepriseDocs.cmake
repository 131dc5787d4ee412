# reprise_extract_code(<output> <page or header>...): the C++ in documents and at the tops of headers,
# so that it can be compiled.
#
# Every block of a page that starts with ```cpp becomes the body of a function of its own (the
# output is included inside of a class); a block with main() is a whole program, which
# test/tree.cmake holds against examples/. Lines that start with #include are left out: whoever
# compiles the output brings the headers.
#
# In a header, the block is a comment:
#
#   // ```cpp
#   // HoleList h;
#   // h.take(10);        // 0
#   // ```
#
# Whoever compiles the output opens the namespace reprise and no room, as users do. The example of a
# header that exports no name, the inside of its room, sees that room as well.
function(reprise_extract_code output)
  set(functions "")
  set(count 0)
  foreach(page IN LISTS ARGN)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${page}")
    get_filename_component(stem "${page}" NAME_WE)
    file(READ "${page}" rest)
    set(fence "```")
    set(opens "")
    if(page MATCHES "[.]hpp$")
      set(fence "// ```")
      if(NOT rest MATCHES "\nnamespace reprise {\nusing " AND rest MATCHES "namespace (reprise::[a-z]+) {")
        set(opens "using namespace ${CMAKE_MATCH_1};\n")
      endif()
    endif()
    while(TRUE)
      string(FIND "${rest}" "${fence}cpp\n" start)
      if(start EQUAL -1)
        break()
      endif()
      string(LENGTH "${fence}cpp\n" length)
      math(EXPR start "${start} + ${length}")
      string(SUBSTRING "${rest}" ${start} -1 rest)
      string(FIND "${rest}" "${fence}" end)
      string(SUBSTRING "${rest}" 0 ${end} code)
      string(LENGTH "${fence}" length)
      math(EXPR end "${end} + ${length}")
      string(SUBSTRING "${rest}" ${end} -1 rest)
      if(page MATCHES "[.]hpp$")
        string(REGEX REPLACE "\n// ?" "\n" code "\n${code}")
      endif()
      string(FIND "${code}" "int main(" program)
      if(NOT program EQUAL -1)
        continue()
      endif()
      string(REGEX REPLACE "#include[^\n]*\n" "" code "${code}")
      math(EXPR count "${count} + 1")
      string(APPEND functions "[[maybe_unused]] void ${stem}_${count}() {\n${opens}${code}}\n\n")
    endwhile()
  endforeach()
  file(CONFIGURE OUTPUT "${output}" CONTENT "static constexpr int blocks_in_documents = ${count};\n\n@functions@" @ONLY)
endfunction()
