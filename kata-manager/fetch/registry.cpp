// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/fetch/registry.h"

#include <cerrno>
#include <charconv>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kata-manager/fetch/manifest.h"

namespace ferry::kata {

BlobFile::BlobFile(UniqueFd file, Digest digest, std::uint64_t size, std::string path)
    : file_(std::move(file)),
      digest_(std::move(digest)),
      size_(size),
      path_(std::move(path)),
      hash_(digest_.algorithm) {}

Result<BlobFile> BlobFile::resume(UniqueFd file, Digest digest, std::uint64_t size, std::string path) {
  constexpr std::size_t kAtOnce = 256UL * 1024;
  BlobFile blob(std::move(file), std::move(digest), size, std::move(path));
  std::vector<char> buffer(kAtOnce);
  for (;;) {
    const ssize_t n = ::pread(blob.fd(), buffer.data(), buffer.size(), static_cast<off_t>(blob.have_));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(error_from_errno(errno, "read " + blob.path_));
    if (n == 0) break;
    blob.have_ += static_cast<std::uint64_t>(n);
    if (blob.have_ > size) {  // not this blob: start over
      if (auto restarted = blob.restart(); !restarted) return fail(std::move(restarted).error());
      return blob;
    }
    blob.hash_.add({buffer.data(), static_cast<std::size_t>(n)});
  }
  blob.patched_ = blob.have_ > 0;
  return blob;
}

Result<> BlobFile::add(std::string_view bytes) {
  if (bytes.size() > size_ - have_)
    return fail(Errc::malformed_host,
                fmt::format("blob {}: there is more of it than its {} bytes", digest_.text(), size_));
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(have_));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(error_from_errno(errno, "write " + path_));
    const auto written = static_cast<std::size_t>(n);
    hash_.add(bytes.substr(0, written));
    have_ += written;
    bytes.remove_prefix(written);
  }
  return {};
}

Result<> BlobFile::restart() {
  if (::ftruncate(file_.get(), 0) != 0) return fail(error_from_errno(errno, "empty " + path_));
  have_ = 0;
  patched_ = false;
  hash_ = ContentHash(digest_.algorithm);
  return {};
}

Result<> BlobFile::finish() {
  const std::string hex = hash_.hex();
  if (hex != digest_.hex) {
    if (auto restarted = restart(); !restarted) return restarted;
    return fail(Errc::failed, fmt::format("blob {}: what came has the digest {}:{}", digest_.text(),
                                          digest_.algorithm, hex));
  }
  if (::fsync(file_.get()) != 0) return fail(error_from_errno(errno, "write " + path_));
  return {};
}

namespace {

constexpr int kOk = 200;
constexpr int kPartial = 206;
constexpr int kRangeNotSatisfiable = 416;

// A local error, such as a full disk, stays the same with another server.
bool is_ours(const Error& error) {
  return error.code.category() == std::generic_category();
}

// True if "bytes FROM-TO/SIZE" begins at `from`.
bool continues_at(const std::string& content_range, std::uint64_t from) {
  constexpr std::string_view kUnit = "bytes ";
  std::uint64_t begin = 0;
  if (!content_range.starts_with(kUnit)) return false;
  const char* const end = content_range.data() + content_range.size();
  const auto [rest, failure] = std::from_chars(content_range.data() + kUnit.size(), end, begin);
  return failure == std::errc() && rest != end && *rest == '-' && begin == from;
}

}  // namespace

RegistryClient::RegistryClient(std::vector<RegistryEndpoint> endpoints, const FetchRequest& request,
                               std::function<void(std::chrono::milliseconds)> pause)
    : endpoints_(std::move(endpoints)),
      request_(request),
      http_(request),
      session_(http_, request.patience, std::move(pause), endpoints_) {}

// The answer of the first server that succeeds; if none does, the last error.
template <typename T>
Result<T> RegistryClient::first_that_can(const std::function<Result<T>(RegistryEndpoint&)>& question) {
  for (std::size_t i = 0;; ++i) {
    auto answer = question(endpoints_[i]);
    if (answer || i + 1 == endpoints_.size() || ended_ || is_ours(answer.error())) return answer;
    notes_.push_back(
        fmt::format("mirror {}; {} is asked instead", answer.error().message, endpoints_[i + 1].host));
  }
}

Result<RegistryClient::Document> RegistryClient::manifest_from(RegistryEndpoint& endpoint,
                                                               const std::string& desired) {
  const HttpRequest question{.url = "/manifests/" + desired,
                             .headers = {fmt::format("Accept: {}", fmt::join(manifest_media_types(), ", "))},
                             .most_text = request_.limits.document};
  auto reply = session_.patiently([&] { return session_.ask_once(endpoint, question); });
  if (!reply) return fail(std::move(reply).error());
  if (reply->status != kOk) return fail(error_of(*reply, endpoint));
  Document document{
      .bytes = std::move(reply->text), .content_type = reply->header("content-type"), .digest = {}};
  const auto asked = Digest::parse(desired);
  document.digest.algorithm = asked ? asked->algorithm : "sha256";
  ContentHash hash(document.digest.algorithm);
  hash.add(document.bytes);
  document.digest.hex = hash.hex();
  if (asked && document.digest != *asked)
    return fail(Errc::failed, fmt::format("{}: manifest {}: what came has the digest {}", endpoint.host,
                                          desired, document.digest.text()));
  return document;
}

Result<HttpReply> RegistryClient::part_from(RegistryEndpoint& endpoint, BlobFile& into,
                                            const std::function<bool()>& on_progress) {
  into.next_answer();
  HttpRequest question{.url = "/blobs/" + into.digest().text()};
  if (into.have() > 0) question.headers.push_back(fmt::format("Range: bytes={}-", into.have()));
  bool begun = false;
  question.body = [&](const HttpReply& head, std::string_view bytes) -> Result<> {
    const bool goes_on = head.status == kPartial && continues_at(head.header("content-range"), into.have());
    if (!std::exchange(begun, true) && into.have() > 0 && !goes_on) {
      // A server may ignore ranges and send all bytes again. Any other range is useless.
      if (auto restarted = into.restart(); !restarted) return restarted;
      if (head.status == kPartial)
        return fail(Errc::unreachable, endpoint.host + ": it sent another range than it was asked for");
    }
    if (auto added = into.add(bytes); !added) return added;
    if (!on_progress || on_progress()) return {};
    ended_ = true;
    return fail(Errc::failed, "ended: the program that asked for this download no longer waits for it");
  };
  auto reply = session_.ask_once(endpoint, question);
  // A connection cut after the last byte is no error: the digest decides.
  if (!reply && reply.error().code == Errc::unreachable && into.have() == into.size())
    return HttpReply{.status = kOk, .headers = {}, .text = {}};
  if (reply && reply->status == kRangeNotSatisfiable && into.have() > 0) {
    if (auto restarted = into.restart(); !restarted) return fail(std::move(restarted).error());
    return fail(Errc::unreachable, endpoint.host + ": it has no such range of the blob");
  }
  if (reply && (reply->status == kOk || reply->status == kPartial) && into.have() < into.size())
    return fail(Errc::unreachable, fmt::format("{}: the blob ended after {} of {} bytes", endpoint.host,
                                               into.have(), into.size()));
  return reply;
}

Result<> RegistryClient::blob_from(RegistryEndpoint& endpoint, BlobFile& into,
                                   const std::function<bool()>& on_progress) {
  for (bool again = false;; again = true) {
    if (into.have() < into.size()) {
      auto reply = session_.patiently([&] { return part_from(endpoint, into, on_progress); },
                                      [&] { return into.have(); });
      if (!reply) return fail(std::move(reply).error());
      if (into.have() < into.size()) return fail(error_of(*reply, endpoint));
    }
    const bool patched = into.is_patched();
    auto finished = into.finish();
    if (finished || is_ours(finished.error())) return finished;
    // Pieces of different answers may not fit together, so one whole answer is requested. Only once: a
    // server that cuts off every answer would cause an endless loop.
    if (!patched || again) return fail(std::move(finished).error().during(endpoint.host));
  }
}

Result<RegistryClient::Document> RegistryClient::manifest(const std::string& tag_or_digest) {
  return first_that_can<Document>(
      [&](RegistryEndpoint& endpoint) { return manifest_from(endpoint, tag_or_digest); });
}

Result<> RegistryClient::blob(BlobFile& into, const std::function<bool()>& on_progress) {
  return first_that_can<void>(
      [&](RegistryEndpoint& endpoint) { return blob_from(endpoint, into, on_progress); });
}

}  // namespace ferry::kata
