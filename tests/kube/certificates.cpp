// SPDX-License-Identifier: Apache-2.0
#include "tests/kube/certificates.h"

#include <stdexcept>
#include <vector>

#include "common/process/spawn.h"
#include "tests/support/must.h"

namespace ferry::test {
namespace {

void openssl(const std::vector<std::string>& words) {
  std::vector<std::string> all{"openssl"};
  all.insert(all.end(), words.begin(), words.end());
  if (reap(must(spawn("openssl", all, {}))) != 0) throw std::runtime_error("openssl " + words.front());
}

std::string in(const ScratchDirectory& folder, const std::string& name) {
  return (folder.path() / name).string();
}

}  // namespace

void make_authority(const ScratchDirectory& folder, const std::string& name) {
  openssl({"req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
           "2", "-subj", "/CN=" + name, "-keyout", in(folder, name + ".key"), "-out",
           in(folder, name + ".pem")});
}

void make_certificate(const ScratchDirectory& folder, const std::string& name, const std::string& authority,
                      const std::string& subject, int days) {
  const std::string request = in(folder, name + ".csr");
  openssl({"req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj",
           "/CN=" + name, "-addext", "subjectAltName=" + subject, "-keyout", in(folder, name + ".key"),
           "-out", request});
  openssl({"x509", "-req", "-in", request, "-CA", in(folder, authority + ".pem"), "-CAkey",
           in(folder, authority + ".key"), "-CAcreateserial", "-days", std::to_string(days),
           "-copy_extensions", "copy", "-out", in(folder, name + ".pem")});
}

void encrypt_key(const ScratchDirectory& folder, const std::string& name, const std::string& encrypted) {
  openssl({"pkey", "-in", in(folder, name + ".key"), "-aes256", "-passout", "pass:secret", "-out",
           in(folder, encrypted)});
}

}  // namespace ferry::test
