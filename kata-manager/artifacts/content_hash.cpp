// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/artifacts/content_hash.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <new>
#include <openssl/evp.h>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "common/file_status.h"
#include "common/lazy_library.h"

namespace ferry::kata {
namespace {

// OpenSSL is loaded with the first hash: it loads slowly, and `ferry` needs it only for `kata verify`.
struct Crypto {
  decltype(&::EVP_MD_CTX_new) make = nullptr;
  decltype(&::EVP_MD_CTX_free) free = nullptr;
  decltype(&::EVP_sha256) sha256 = nullptr;
  decltype(&::EVP_DigestInit_ex) begin = nullptr;
  decltype(&::EVP_DigestUpdate) update = nullptr;
  decltype(&::EVP_DigestFinal_ex) end = nullptr;
};

Result<Crypto> load() {
  auto library = LazyLibrary::load("libcrypto.so.3", "install libssl3");
  if (!library) return fail(std::move(library).error());
  Crypto crypto;
  library->find("EVP_MD_CTX_new", crypto.make);
  library->find("EVP_MD_CTX_free", crypto.free);
  library->find("EVP_sha256", crypto.sha256);
  library->find("EVP_DigestInit_ex", crypto.begin);
  library->find("EVP_DigestUpdate", crypto.update);
  library->find("EVP_DigestFinal_ex", crypto.end);
  if (auto r = library->has_all("install libssl3"); !r) return fail(std::move(r).error());
  return crypto;
}

const Result<Crypto>& loaded() {
  static const Result<Crypto> crypto = load();
  return crypto;
}

}  // namespace

void ContentHash::Free::operator()(EVP_MD_CTX* context) const {
  loaded()->free(context);
}

ContentHash::ContentHash() : context_(loaded().value().make()) {
  // These calls fail only if memory runs out.
  if (context_ == nullptr || loaded()->begin(context_.get(), loaded()->sha256(), nullptr) != 1)
    throw std::bad_alloc();
}

void ContentHash::add(std::string_view bytes) {
  if (loaded()->update(context_.get(), bytes.data(), bytes.size()) != 1) throw std::bad_alloc();
}

std::string ContentHash::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned size = 0;
  if (loaded()->end(context_.get(), bytes.data(), &size) != 1) throw std::bad_alloc();
  std::string text;
  for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", bytes[i]);
  return text;
}

Result<std::string> hash_of(int fd, const std::string& path,
                            const std::function<void(std::size_t)>& on_progress) {
  constexpr std::size_t kAtOnce = 256UL * 1024;
  if (!loaded()) return fail(loaded().error());
  ContentHash hash;
  std::vector<char> buffer(kAtOnce);
  for (off_t at = 0;;) {
    const ssize_t n = ::pread(fd, buffer.data(), buffer.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(error_from_errno(errno, "read " + path));
    if (n == 0) return hash.hex();
    hash.add({buffer.data(), static_cast<std::size_t>(n)});
    at += n;
    if (on_progress) on_progress(static_cast<std::size_t>(n));
  }
}

namespace {

using Found = std::optional<std::string>;

Result<Found> change_of(const HostFs& host, const ArtifactFile& file, const std::filesystem::path& path,
                        const std::function<void(std::size_t)>& on_progress) {
  if (!file.link.empty()) {
    const auto target = host.link_target(path.relative_path());
    if (!target && is_gone(target.error())) return Found("is not there");
    if (!target || *target != file.link) return Found("is no link to " + file.link);
    return Found();
  }
  if (file.sha256.empty()) return Found();  // a folder of file:// has no hashes
  // A link or a pipe may be in the file's place; opening it must not follow or block.
  const auto fd = host.open(path.relative_path(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (!fd && is_gone(fd.error())) return Found("is not there");
  if (!fd && fd.error().code == std::errc::too_many_symbolic_link_levels) return Found("is a link");
  if (!fd) return fail(fd.error());
  const auto status = file_status(fd->get());
  if (!status) return fail(error_from_errno(errno, "stat " + path.string()));
  if (!S_ISREG(status->st_mode)) return Found("is no file");
  const auto size = static_cast<std::uint64_t>(status->st_size);
  if (size != file.size)
    return Found(fmt::format("has {} bytes, and had {} when it was fetched", size, file.size));
  const auto hash = hash_of(fd->get(), path.string(), on_progress);
  if (!hash) return fail(hash.error());
  if (*hash != file.sha256) return Found("has another content than when it was fetched");
  return Found();
}

}  // namespace

Result<std::vector<std::string>> changes_since_fetch(
    const HostFs& host, const Artifact& artifact,
    const std::function<void(const CheckProgress&)>& on_progress) {
  CheckProgress progress;
  for (const ArtifactFile& file : artifact.files) progress.total += file.size;
  const auto report = [&](std::size_t bytes) {
    progress.done += bytes;
    if (on_progress) on_progress(progress);
  };
  std::vector<std::string> out;
  for (const ArtifactFile& file : artifact.files) {
    const auto path = artifact.version / file.path;
    const auto what = change_of(host, file, path, report);
    if (!what) return fail(what.error());
    if (const auto& found = *what) out.push_back(path.string() + " " + *found);
  }
  return out;
}

}  // namespace ferry::kata
