# SPDX-License-Identifier: Apache-2.0
# Run by cpack between install and package. Folders have the modes that the packer's umask left; then only root could read
# the manual. (CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS does nothing where there are components: CMake 3.25.)
file(CHMOD_RECURSE ${CPACK_TEMPORARY_INSTALL_DIRECTORY} DIRECTORY_PERMISSIONS
     OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
