// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/config/config_reader.h"
#include "common/text/encoding.h"
#include "common/text/text.h"
#include "kube/cluster_access.h"
#include "kube/credential_file.h"

namespace ferry::kube {
namespace {

using Kind = ConfigNode::Kind;

// A key that Ferry refuses and kubectl takes, with the reason.
struct Refused {
  const char* key;
  const char* why;
  const char* hint;
};

constexpr const char* kWhyNotAs = "Ferry acts only as the user that it is logged in as";
constexpr const char* kHintAs = "remove it, and give that user's own credentials";
constexpr std::array kRefused = {
    Refused{"exec", "Ferry runs no programs of a kubeconfig here, so exec cannot log it in",
            "give it a token, a tokenFile or a client certificate"},
    Refused{"auth-provider", "logging in by a provider is not done here",
            "log in by a token, a tokenFile or a client certificate"},
    Refused{"as", kWhyNotAs, kHintAs},
    Refused{"as-uid", kWhyNotAs, kHintAs},
    Refused{"as-groups", kWhyNotAs, kHintAs},
    Refused{"as-user-extra", kWhyNotAs, kHintAs}};

/// Puts a value in its place, or returns the error.
template <typename Value>
Result<> store(Result<Value> value, Value& into) {
  if (!value) return fail(std::move(value).error());
  into = std::move(*value);
  return {};
}

/// A map in a file whose texts are secrets: its values are never shown. Without a map: an entry without
/// content.
struct Part {
  const ConfigText* source = nullptr;
  const ConfigNode* at = nullptr;  ///< the map, or the node in its place
  std::string path = {};

  ConfigReader reader() const { return ConfigReader(*source); }
  std::string key(std::string_view name) const {
    return path.empty() ? std::string(name) : fmt::format("{}.{}", path, name);
  }
  /// nullptr: absent, or without a value.
  const ConfigNode* find(std::string_view name) const {
    const ConfigMember* member = at->kind == Kind::map ? at->find(name) : nullptr;
    return member == nullptr || member->value.kind == Kind::null ? nullptr : &member->value;
  }
  tl::unexpected<Error> refuse(const ConfigNode& node, std::string_view name, const std::string& what,
                               std::string hint = {}) const {
    return reader().refuse(node, key(name), what, std::move(hint));
  }
  Result<> check_keys(const std::vector<std::string>& known) const {
    if (at->kind == Kind::null) return {};
    if (at->kind != Kind::map) return reader().refuse(*at, path, "expected a map, found " + sort_of(*at));
    return reader().check_keys(*at, path, known);
  }
  Result<std::string> text(std::string_view name) const {
    const ConfigNode* node = find(name);
    if (node == nullptr) return std::string();
    if (node->is_string()) return node->text;
    return refuse(*node, name, "expected a string, found " + sort_of(*node),
                  node->kind == Kind::scalar ? "put it in quotes" : "");
  }
  Result<bool> flag(std::string_view name) const {
    const ConfigNode* node = find(name);
    return node == nullptr ? Result<bool>(false) : reader().read_flag(*node, key(name));
  }
  /// The PEM text in place, or else the file, whose path is relative to the kubeconfig.
  Result<Credential> pem(const std::string& name) const {
    const std::string data = name + "-data";
    const auto packed = text(data);
    if (!packed) return fail(packed.error());
    if (!packed->empty()) {
      auto bytes = from_base64(*packed);
      if (!bytes || bytes->find("-----BEGIN ") == std::string::npos)
        return refuse(*find(data), data, bytes ? "it is base64, but of no PEM" : "it is not base64",
                      "it is what `base64 -w0 FILE` prints");
      return Credential{.text = std::move(*bytes), .file = {}};
    }
    return path_at(name);
  }
  Result<Credential> path_at(std::string_view name) const {
    const auto relative = text(name);
    if (!relative) return fail(relative.error());
    if (relative->empty()) return Credential{};
    return Credential{.text = {}, .file = std::filesystem::path(source->file).parent_path() / *relative};
  }

  /// Without a scalar's text, which may be a secret.
  static std::string sort_of(const ConfigNode& node) {
    if (node.kind != Kind::scalar) return node.described();
    return node.is_string() ? "a string" : "a number, a boolean or a date";
  }
};

Result<> check_file(const Part& top) {
  if (auto known = top.check_keys({"apiVersion", "kind", "preferences", "clusters", "users", "contexts",
                                   "current-context", "extensions"});
      !known)
    return known;
  for (const auto& [name, desired] : {std::pair{"apiVersion", "v1"}, std::pair{"kind", "Config"}}) {
    const ConfigNode* node = top.find(name);
    if (node != nullptr && (node->kind != Kind::scalar || node->text != desired))
      return top.refuse(*node, name, fmt::format("expected {}, found {}", desired, node->described()));
  }
  return {};
}

/// The only entry of that name in a list of a file. `asked` is the node in `by` that names the entry;
/// nullptr: the command line does.
Result<Part> entry_of(const Part& top, const std::string& list, const char* inner, const std::string& name,
                      const Part& by, const ConfigNode* asked) {
  const ConfigNode* items = top.find(list);
  if (items != nullptr && items->kind != Kind::list)
    return top.refuse(*items, list, "expected a list, found " + Part::sort_of(*items));
  std::optional<Part> found;
  std::vector<std::string> names;
  for (std::size_t i = 0; items != nullptr && i < items->items.size(); ++i) {
    const Part entry{.source = top.source, .at = &items->items[i], .path = fmt::format("{}[{}]", list, i)};
    const ConfigNode* called = entry.find("name");
    if (called == nullptr || !called->is_string())
      return top.reader().refuse(*entry.at, entry.path, "expected a map with a name that is a string");
    names.push_back(called->text);
    if (called->text != name) continue;
    if (found)
      return entry.refuse(*called, "name", fmt::format("an entry before it is called '{}' too", name));
    if (auto known = entry.check_keys({"name", inner}); !known) return fail(std::move(known).error());
    const ConfigMember* content = entry.at->find(inner);
    if (content == nullptr) return entry.refuse(*called, inner, "the key is missing");
    found =
        Part{.source = top.source, .at = &content->value, .path = fmt::format("{}[{}].{}", list, i, inner)};
  }
  if (found) return *found;

  const std::string what = fmt::format("there is no {} '{}'{}", inner, name, did_you_mean(name, names));
  std::string hint = names.empty() ? "" : fmt::format("there are: {}", fmt::join(names, ", "));
  if (asked != nullptr)
    return top.reader().refuse(*asked, asked == by.at ? by.path : by.key(inner), what, std::move(hint));
  return fail(Errc::invalid_config, fmt::format("{}: {}", top.source->file, what), std::move(hint));
}

Result<> read_cluster(const Part& cluster, const Environment& environment, ClusterAccess& into) {
  if (auto known = cluster.check_keys({"server", "tls-server-name", "insecure-skip-tls-verify",
                                       "certificate-authority", "certificate-authority-data", "proxy-url",
                                       "disable-compression", "extensions"});
      !known)
    return known;
  const auto server = cluster.text("server");
  if (!server) return fail(server.error());
  if (server->empty()) return cluster.refuse(*cluster.at, "server", "the key is missing");
  const ConfigNode& server_node = *cluster.find("server");
  auto address = ServerAddress::parse(*server);
  if (!address) return cluster.refuse(server_node, "server", address.error().message, address.error().hint);
  into.server = std::move(*address);
  if (!into.server.tls && !into.server.is_loopback())
    return cluster.refuse(server_node, "server", "without TLS only this machine itself is talked to",
                          "write https://");

  const auto insecure = cluster.flag("insecure-skip-tls-verify");
  if (!insecure) return fail(insecure.error());
  if (*insecure)
    return cluster.refuse(*cluster.find("insecure-skip-tls-verify"), "insecure-skip-tls-verify",
                          "the server's certificate is always verified",
                          "give its authority by certificate-authority or certificate-authority-data");
  const auto small = cluster.flag("disable-compression");
  if (!small) return fail(small.error());
  into.compressed = !*small;

  if (auto read = store(cluster.text("tls-server-name"), into.tls_server_name); !read) return read;
  if (!into.tls_server_name.empty() && !is_host(into.tls_server_name))
    return cluster.refuse(*cluster.find("tls-server-name"), "tls-server-name",
                          fmt::format("'{}' is neither a name nor an IP address", into.tls_server_name));

  if (auto read = store(cluster.pem("certificate-authority"), into.authorities); !read) return read;

  const auto proxy = cluster.text("proxy-url");
  if (!proxy) return fail(proxy.error());
  auto url = proxy->empty() ? proxy_of_environment(into.server, environment) : proxy_url(*proxy);
  if (!url && proxy->empty()) return fail(Errc::invalid_config, url.error().message, url.error().hint);
  if (!url)
    return cluster.refuse(*cluster.find("proxy-url"), "proxy-url", url.error().message, url.error().hint);
  if (!url->empty() && !into.server.tls)
    return cluster.refuse(*cluster.find("proxy-url"), "proxy-url",
                          "without TLS a proxy would see our credentials", "write https:// in server");
  into.proxy = std::move(*url);
  return {};
}

Result<> read_user(const Part& user, ClusterAccess& into) {
  for (const Refused& refused : kRefused)
    if (const ConfigNode* node = user.find(refused.key); node != nullptr)
      return user.refuse(*node, refused.key, refused.why, refused.hint);
  if (auto known =
          user.check_keys({"client-certificate", "client-certificate-data", "client-key", "client-key-data",
                           "token", "tokenFile", "username", "password", "extensions"});
      !known)
    return known;
  for (const auto& [name, part] :
       {std::pair{"client-certificate", &into.certificate}, std::pair{"client-key", &into.key}})
    if (auto read = store(user.pem(name), *part); !read) return read;
  if (into.certificate.empty() != into.key.empty()) {
    return user.refuse(*user.at, into.key.empty() ? "client-key" : "client-certificate", "the key is missing",
                       "a certificate and its key go together");
  }
  for (const auto& [name, part] :
       {std::pair{"username", &into.username}, std::pair{"password", &into.password}})
    if (auto read = store(user.text(name), *part); !read) return read;

  const auto token = user.text("token");
  if (!token) return fail(token.error());
  auto file = user.path_at("tokenFile");
  if (!file) return fail(std::move(file).error());
  if (!token->empty() && !file->empty())
    return user.refuse(*user.find("token"), "token",
                       "tokenFile is there too, and which counts is not agreed on", "keep one of them");
  into.token = std::move(*file);
  if (!token->empty()) {
    auto word = token_of(*token);
    if (!word) return user.refuse(*user.find("token"), "token", word.error().message, word.error().hint);
    into.token.text = std::move(*word);
  }
  if (!into.token.empty() && !(into.username.empty() && into.password.empty()))
    return user.refuse(*user.at, "username", "a token is there too", "keep one of them");
  return {};
}

}  // namespace

Result<ClusterAccess> access_from_kubeconfig(const ConfigText& source, const std::string& context,
                                             const Environment& environment) {
  const auto root = parse_config(source);
  if (!root) return fail(root.error());
  const Part top{.source = &source, .at = &*root};
  if (auto good = check_file(top); !good) return fail(std::move(good).error());

  const auto current = top.text("current-context");
  if (!current) return fail(current.error());
  const std::string& name = context.empty() ? *current : context;
  if (name.empty())
    return fail(Errc::invalid_config, source.file + ": no context is chosen: there is no current-context",
                "choose one of its contexts");
  const ConfigNode* const asked = context.empty() ? top.find("current-context") : nullptr;
  const Part by{.source = &source, .at = asked == nullptr ? top.at : asked, .path = "current-context"};
  const auto chosen = entry_of(top, "contexts", "context", name, by, asked);
  if (!chosen) return fail(chosen.error());
  if (auto known = chosen->check_keys({"cluster", "user", "namespace", "extensions"}); !known)
    return fail(std::move(known).error());

  ClusterAccess out;
  const auto cluster_name = chosen->text("cluster");
  if (!cluster_name) return fail(cluster_name.error());
  if (cluster_name->empty()) return chosen->refuse(*chosen->at, "cluster", "the key is missing");
  const auto cluster = entry_of(top, "clusters", "cluster", *cluster_name, *chosen, chosen->find("cluster"));
  if (!cluster) return fail(cluster.error());
  if (auto read = read_cluster(*cluster, environment, out); !read) return fail(std::move(read).error());

  const auto user_name = chosen->text("user");
  if (!user_name) return fail(user_name.error());
  if (!user_name->empty()) {
    const auto user = entry_of(top, "users", "user", *user_name, *chosen, chosen->find("user"));
    if (!user) return fail(user.error());
    if (auto read = read_user(*user, out); !read) return fail(std::move(read).error());
  }
  if (auto read = store(chosen->text("namespace"), out.default_namespace); !read)
    return fail(std::move(read).error());
  return out;
}

}  // namespace ferry::kube
