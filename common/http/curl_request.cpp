// SPDX-License-Identifier: Apache-2.0
#include "common/http/curl_request.h"

#include <algorithm>
#include <new>

#include "common/version.h"

namespace ferry {
namespace {

Errc code_of(CURLcode code) {
  switch (static_cast<int>(code)) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_WRITE_ERROR:
    case CURLE_BAD_CONTENT_ENCODING:
    case CURLE_OUT_OF_MEMORY:
      return Errc::failed;
    default:
      return Errc::unreachable;
  }
}

}  // namespace

curl_blob curl_blob_of(const std::string& text) {
  // libcurl takes no const pointer, but copies the data.
  return {.data = const_cast<char*>(text.data()),  // NOLINT(cppcoreguidelines-pro-type-const-cast)
          .len = text.size(),
          .flags = CURL_BLOB_COPY};
}

void append(CurlList& list, const std::string& line) {
  curl_slist* const longer = ::curl_slist_append(list.get(), line.c_str());
  if (longer == nullptr) throw std::bad_alloc();
  (void)list.release();
  list.reset(longer);
}

CurlRequest::CurlRequest() {
  static const CURLcode kReady = ::curl_global_init(CURL_GLOBAL_DEFAULT);
  easy_ = kReady == CURLE_OK ? ::curl_easy_init() : nullptr;
  if (easy_ == nullptr) throw std::bad_alloc();
}

CurlRequest::~CurlRequest() {
  ::curl_easy_cleanup(easy_);
}

void CurlRequest::begin(const std::string& url, std::chrono::milliseconds connect) {
  ::curl_easy_reset(easy_);
  headers_.reset();
  why_.fill('\0');
  set(CURLOPT_ERRORBUFFER, why_.data());
  set(CURLOPT_URL, url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(connect.count()));
  set(CURLOPT_TCP_KEEPALIVE, 1L);
  set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  set(CURLOPT_SSL_VERIFYPEER, 1L);
  set(CURLOPT_SSL_VERIFYHOST, 2L);
  set(CURLOPT_HEADEROPT, static_cast<long>(CURLHEADER_SEPARATE));
  set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  set(CURLOPT_USERAGENT, (std::string("ferry/") + kVersion).c_str());
}

void CurlRequest::add_header(const std::string& line) {
  append(headers_, line);
  set(CURLOPT_HTTPHEADER, headers_.get());
}

void CurlRequest::trust(const std::string& authorities) {
  if (authorities.empty()) return;
  const curl_blob blob = curl_blob_of(authorities);
  set(CURLOPT_CAINFO_BLOB, &blob);
  ::curl_easy_setopt(easy_, CURLOPT_CAPATH, nullptr);
}

void CurlRequest::sign_in(const std::string& username, const std::string& password) {
  if (username.empty() && password.empty()) return;
  set(CURLOPT_HTTPAUTH, CURLAUTH_BASIC);
  set(CURLOPT_USERNAME, username.c_str());
  set(CURLOPT_PASSWORD, password.c_str());
}

void CurlRequest::send(const std::string& body) {
  set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
  set(CURLOPT_POSTFIELDS, body.c_str());
}

Error CurlRequest::failure(CURLcode code) const {
  return {.code = make_error_code(code_of(code)),
          .message = why_.front() != '\0' ? why_.data() : ::curl_easy_strerror(code),
          .hint = {}};
}

int CurlRequest::status() const {
  long status = 0;
  ::curl_easy_getinfo(easy_, CURLINFO_RESPONSE_CODE, &status);
  return static_cast<int>(status);
}

std::chrono::seconds CurlRequest::retry_after() const {
  constexpr curl_off_t kMost = 24L * 60 * 60;  // a longer one is taken for a mistake
  curl_off_t seconds = 0;
  ::curl_easy_getinfo(easy_, CURLINFO_RETRY_AFTER, &seconds);
  return std::chrono::seconds(std::clamp<curl_off_t>(seconds, 0, kMost));
}

}  // namespace ferry
