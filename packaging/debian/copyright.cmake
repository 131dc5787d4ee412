# Run by cpack on what it is about to pack: Debian has the license in /usr/share/doc/<package>/copyright.

set(tree "${CPACK_TEMPORARY_INSTALL_DIRECTORY}")
set(doc "${tree}/usr/share/doc/${CPACK_PACKAGE_NAME}")
file(MAKE_DIRECTORY "${doc}")
file(RENAME "${tree}/usr/share/licenses/reprise/LICENSE" "${doc}/copyright")
file(REMOVE_RECURSE "${tree}/usr/share/licenses")
# Folders are made with the umask of who packs: with 077 nobody else could read what is installed.
file(CHMOD_RECURSE "${tree}/usr" FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ
  DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
