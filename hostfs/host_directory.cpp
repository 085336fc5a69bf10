// SPDX-License-Identifier: Apache-2.0
#include "hostfs/host_directory.h"

#include <cerrno>
#include <fcntl.h>
#include <string_view>
#include <utility>

#include "hostfs/descriptor_reads.h"

namespace ferry {

Result<HostDirectory> HostDirectory::open(const HostFs& host, std::filesystem::path relative) {
  auto fd = host.open(relative, O_PATH | O_DIRECTORY);
  if (!fd) return fail(std::move(fd).error());
  return HostDirectory(std::move(*fd), std::move(relative));
}

Result<HostDirectory> HostDirectory::open(const HostFs& host, std::filesystem::path relative,
                                          std::vector<std::string>& names) {
  auto fd = host.open(relative, O_RDONLY | O_DIRECTORY);
  if (!fd) return fail(std::move(fd).error());
  HostDirectory directory(std::move(*fd), std::move(relative));
  auto read = directory.names_of(directory.fd_.get(), ".");
  if (!read) return fail(std::move(read).error());
  names = std::move(*read);
  return directory;
}

std::string HostDirectory::describe(const char* verb, const char* name) const {
  return std::string(verb) + " /" + (std::string_view(name) == "." ? relative_ : relative_ / name).string();
}

Result<UniqueFd> HostDirectory::open(const char* name, int flags) const {
  UniqueFd fd(::openat(fd_.get(), name, flags | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid()) return fail(error_from_errno(errno, describe("open", name)));
  return fd;
}

bool HostDirectory::is_same(const HostDirectory& other) const {
  return is_same_file(fd_.get(), other.fd_.get());
}

Result<std::string> HostDirectory::read_file(const char* name) const {
  const auto fd = open(name, O_RDONLY);
  if (!fd) return fail(fd.error());
  return read_to_end(fd->get(), [this, name] { return describe("read", name); });
}

Result<std::string> HostDirectory::read_attribute(const char* name) const {
  const auto fd = open(name, O_RDONLY);
  if (!fd) return fail(fd.error());
  auto content = read_attribute_text(fd->get(), [this, name] { return describe("read", name); });
  if (content && content->ends_with('\n')) content->pop_back();
  return content;
}

Result<std::string> HostDirectory::link_target(const char* name) const {
  return read_link(fd_.get(), name, [this, name] { return describe("read link", name); });
}

Result<std::string> HostDirectory::link_name(const char* name) const {
  auto target = link_target(name);
  if (target) target->erase(0, target->find_last_of('/') + 1);
  return target;
}

Result<std::vector<std::string>> HostDirectory::list(const char* name) const {
  const auto fd = open(name, O_RDONLY | O_DIRECTORY);
  if (!fd) return fail(fd.error());
  return names_of(fd->get(), name);
}

Result<std::vector<std::string>> HostDirectory::names_of(int fd, const char* name) const {
  return read_names(fd, [this, name] { return describe("list", name); });
}

}  // namespace ferry
