# Run by cpack on what it is about to pack: Debian has the license in /usr/share/doc/<package>/copyright.

if(NOT CPACK_GENERATOR STREQUAL "DEB")
  return()
endif()
set(tree "${CPACK_TEMPORARY_INSTALL_DIRECTORY}")
set(licenses "${tree}${CPACK_PACKAGING_INSTALL_PREFIX}/${CPACK_REPRISE_LICENSES}")
set(doc "${tree}/usr/share/doc/${CPACK_PACKAGE_NAME}")
file(MAKE_DIRECTORY "${doc}")
file(RENAME "${licenses}/reprise/LICENSE" "${doc}/copyright")
file(REMOVE_RECURSE "${licenses}")
# Folders are made with the umask of who packs: with 077 nobody else could read what is installed.
file(GLOB folders LIST_DIRECTORIES ON "${tree}/*")
file(CHMOD_RECURSE ${folders} FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ
  DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
