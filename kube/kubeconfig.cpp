// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "common/config/config_reader.h"
#include "common/text/encoding.h"
#include "common/text/text.h"
#include "kube/cluster_access.h"
#include "kube/credential_file.h"

namespace ferry::kube {
namespace {

using nlohmann::json;
using Kind = ConfigNode::Kind;

// A key that Ferry refuses and kubectl takes, with the reason.
struct Refused {
  const char* key;
  const char* why;
  const char* hint;
  bool for_persons = false;  ///< refused also where a person has started the program
};

constexpr const char* kWhyNotAs = "Ferry acts only as the user that it is logged in as";
constexpr const char* kHintAs = "remove it, and give that user's own credentials";
constexpr std::array kRefused = {
    Refused{"exec", "Ferry runs no programs of a kubeconfig here, so exec cannot log it in",
            "give it a token, a tokenFile or a client certificate"},
    Refused{"auth-provider", "logging in by a provider is not done here",
            "log in by exec, as with kubelogin, or by a token, a tokenFile or a client certificate", true},
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

/// A file whose texts are secrets: its values are never shown.
struct File {
  const ConfigText* source;
  ConfigReader reader;
  ConfigNode root;
  AccessFor whose;
};

/// A map in a file. Without a map: an entry without content.
struct Part {
  const File* file = nullptr;
  const ConfigNode* at = nullptr;  ///< the map, or the node in its place
  std::string path;

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
    return file->reader.refuse(node, key(name), what, std::move(hint));
  }
  Result<> check_keys(const std::vector<std::string>& known) const {
    if (at->kind == Kind::null) return {};
    if (at->kind != Kind::map) return file->reader.refuse(*at, path, "expected a map, found " + sort_of(*at));
    if (file->whose == AccessFor::service) return file->reader.check_keys(*at, path, known);
    // kubectl ignores unknown keys. A mistyped one would leave out something that the user has written.
    ConfigNode near;
    for (const ConfigMember& member : at->members)
      if (!suggest(member.key.text, known).empty()) near.members.push_back({.key = member.key, .value = {}});
    return file->reader.check_keys(near, path, known);
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
    return node == nullptr ? Result<bool>(false) : file->reader.read_flag(*node, key(name));
  }
  /// A text that can be handed to a program or stand in a header.
  Result<std::string> word(std::string_view name) const {
    auto read = text(name);
    if (read && std::ranges::any_of(*read, is_control))
      return refuse(*find(name), name, "a control character is in it");
    return read;
  }
  /// A list of such texts. Empty: absent.
  Result<std::vector<std::string>> words(std::string_view name) const {
    std::vector<std::string> out;
    const ConfigNode* list = find(name);
    if (list == nullptr) return out;
    if (list->kind != Kind::list) return refuse(*list, name, "expected a list, found " + sort_of(*list));
    for (std::size_t i = 0; i < list->items.size(); ++i) {
      const ConfigNode& item = list->items[i];
      const std::string place = fmt::format("{}[{}]", name, i);
      if (item.kind != Kind::null && !item.is_string())
        return refuse(item, place, "expected a string, found " + sort_of(item),
                      item.kind == Kind::scalar ? "put it in quotes" : "");
      if (item.text.find('\0') != std::string::npos)
        return refuse(item, place, "a control character is in it");
      out.push_back(item.text);
    }
    return out;
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
    return Credential{.text = {},
                      .file = std::filesystem::path(file->source->file).parent_path() / *relative};
  }

  static bool is_control(char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7F'; }
  static std::string sort_of(const ConfigNode& node) {
    switch (node.kind) {
      case Kind::null:
        return "nothing";
      case Kind::scalar:
        return node.is_string() ? "a string" : "a number, a boolean or a date";
      case Kind::list:
        return "a list";
      case Kind::map:
        return "a map";
    }
    return {};
  }
};

Result<File> read_file(const ConfigText& source, AccessFor whose) {
  auto root = parse_config(source);
  if (!root) return fail(std::move(root).error());
  File file{.source = &source, .reader = ConfigReader(source), .root = std::move(*root), .whose = whose};
  const Part top{.file = &file, .at = &file.root, .path = {}};
  if (auto known = top.check_keys({"apiVersion", "kind", "preferences", "clusters", "users", "contexts",
                                   "current-context", "extensions"});
      !known)
    return fail(std::move(known).error());
  for (const auto& [name, desired] : {std::pair{"apiVersion", "v1"}, std::pair{"kind", "Config"}}) {
    const ConfigNode* node = top.find(name);
    if (node != nullptr && (node->kind != Kind::scalar || node->text != desired))
      return top.refuse(*node, name, fmt::format("expected {}, found {}", desired, node->described()));
  }
  return file;
}

/// The only entry of that name in a list of a file; absent: there is none.
Result<std::optional<Part>> find_entry(const File& file, const std::string& list, const char* inner,
                                       const std::string& name) {
  const Part top{.file = &file, .at = &file.root, .path = {}};
  const ConfigNode* items = top.find(list);
  std::optional<Part> found;
  if (items == nullptr) return found;
  if (items->kind != Kind::list)
    return top.refuse(*items, list, "expected a list, found " + Part::sort_of(*items));
  for (std::size_t i = 0; i < items->items.size(); ++i) {
    const Part entry{.file = &file, .at = &items->items[i], .path = fmt::format("{}[{}]", list, i)};
    const ConfigNode* called = entry.find("name");
    if (called == nullptr || !called->is_string())
      return file.reader.refuse(*entry.at, entry.path, "expected a map with a name that is a string");
    if (called->text != name) continue;
    if (found)
      return entry.refuse(*called, "name", fmt::format("an entry before it is called '{}' too", name));
    if (auto known = entry.check_keys({"name", inner}); !known) return fail(std::move(known).error());
    const ConfigMember* content = entry.at->find(inner);
    if (content == nullptr) return entry.refuse(*called, inner, "the key is missing");
    found = Part{.file = &file, .at = &content->value, .path = fmt::format("{}[{}].{}", list, i, inner)};
  }
  return found;
}

std::vector<std::string> names_in(const std::vector<File>& files, const std::string& list) {
  std::vector<std::string> names;
  for (const File& file : files) {
    const ConfigMember* items = file.root.find(list);
    if (items == nullptr) continue;
    for (const ConfigNode& item : items->value.items)
      if (const ConfigMember* name = item.find("name"); name != nullptr) names.push_back(name->value.text);
  }
  return names;
}

/// The entry of that name in the first file that has one. `asked` is the node in `by` that names the entry;
/// nullptr: the command line does.
Result<Part> entry_of(const std::vector<File>& files, const std::string& list, const char* inner,
                      const std::string& name, const Part& by, const ConfigNode* asked) {
  for (const File& file : files) {
    auto entry = find_entry(file, list, inner, name);
    if (!entry) return fail(std::move(entry).error());
    if (const std::optional<Part>& found = *entry; found) return *found;
  }
  const auto names = names_in(files, list);
  const std::string what = fmt::format("there is no {} '{}'{}", inner, name, did_you_mean(name, names));
  std::string hint = names.empty() ? "" : fmt::format("there are: {}", fmt::join(names, ", "));
  if (asked != nullptr)
    return by.file->reader.refuse(*asked, asked == by.at ? by.path : by.key(inner), what, std::move(hint));
  return fail(Errc::invalid_config, fmt::format("{}: {}", by.file->source->file, what), std::move(hint));
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

  if (auto read = store(cluster.flag("insecure-skip-tls-verify"), into.insecure); !read) return read;
  if (into.insecure && cluster.file->whose == AccessFor::service)
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
  if (into.insecure && !into.authorities.empty())
    return cluster.refuse(*cluster.find("insecure-skip-tls-verify"), "insecure-skip-tls-verify",
                          "an authority to verify the server by is there too", "keep one of them");

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

// A scalar in the sense of kubectl's reader.
json json_of_scalar(const ConfigNode& node) {
  if (node.quoted || node.is_string()) return node.text;
  if (const auto number = plain_number(node)) return *number;
  for (const char* word : {"null", "Null", "NULL", "~"})
    if (node.text == word) return nullptr;
  for (const char* word : {"true", "True", "TRUE", "false", "False", "FALSE"})
    if (node.text == word) return lower(word) == "true";
  double real = 0;
  const char* const end = node.text.data() + node.text.size();
  const auto [at, error] = std::from_chars(node.text.data(), end, real);
  if (error == std::errc() && at == end) return real;
  return node.text;
}

json json_of(const ConfigNode& node) {
  switch (node.kind) {
    case Kind::null:
      return nullptr;
    case Kind::scalar:
      return json_of_scalar(node);
    case Kind::list: {
      json out = json::array();
      for (const ConfigNode& item : node.items) out.push_back(json_of(item));
      return out;
    }
    case Kind::map: {
      json out = json::object();
      for (const ConfigMember& member : node.members) out[member.key.text] = json_of(member.value);
      return out;
    }
  }
  return nullptr;
}

/// spec.cluster of KUBERNETES_EXEC_INFO. The cluster has been read without an error.
/// ABI: k8s.io/client-go/rest, ConfigToExecCluster; the extension is that of clientcmd.
json exec_cluster(const Part& cluster, const ClusterAccess& access) {
  constexpr std::string_view kExtension = "client.authentication.k8s.io/exec";
  json out = {{"server", cluster.text("server").value_or("")}};
  if (!access.tls_server_name.empty()) out["tls-server-name"] = access.tls_server_name;
  if (access.insecure) out["insecure-skip-tls-verify"] = true;
  if (!access.compressed) out["disable-compression"] = true;
  if (const auto proxy = cluster.text("proxy-url"); proxy && !proxy->empty()) out["proxy-url"] = *proxy;
  const ConfigNode* extensions = cluster.find("extensions");
  if (extensions == nullptr) return out;
  for (const ConfigNode& item : extensions->items) {
    const ConfigMember* name = item.find("name");
    const ConfigMember* content = item.find("extension");
    if (name != nullptr && name->value.text == kExtension && content != nullptr)
      out["config"] = json_of(content->value);
  }
  return out;
}

Result<ExecConfig::InteractiveMode> read_interactive_mode(const Part& exec, bool is_beta) {
  using Mode = ExecConfig::InteractiveMode;
  constexpr const char* kKey = "interactiveMode";
  const auto mode = exec.text(kKey);
  if (!mode) return fail(mode.error());
  if (mode->empty() && is_beta) return Mode::if_available;
  for (const auto& [name, value] :
       {std::pair{"Never", Mode::never}, {"IfAvailable", Mode::if_available}, {"Always", Mode::always}}) {
    if (*mode == name) return value;
  }
  const char* const hint = "write Never, IfAvailable or Always";
  if (mode->empty()) return exec.refuse(*exec.at, kKey, "the key is missing", hint);
  return exec.refuse(*exec.find(kKey), kKey, fmt::format("'{}' is no mode", shortened(*mode)), hint);
}

Result<> read_exec_variables(const Part& exec, Environment& into) {
  const ConfigNode* list = exec.find("env");
  if (list == nullptr) return {};
  if (list->kind != Kind::list)
    return exec.refuse(*list, "env", "expected a list, found " + Part::sort_of(*list));
  for (std::size_t i = 0; i < list->items.size(); ++i) {
    const Part entry{
        .file = exec.file, .at = &list->items[i], .path = fmt::format("{}[{}]", exec.key("env"), i)};
    if (auto known = entry.check_keys({"name", "value"}); !known) return known;
    const auto name = entry.word("name");
    if (!name) return fail(name.error());
    if (name->empty() || name->find('=') != std::string::npos)
      return entry.refuse(*entry.at, "name",
                          name->empty() ? "the key is missing" : "no variable has a '=' in its name");
    auto value = entry.text("value");
    if (!value) return fail(std::move(value).error());
    if (value->find('\0') != std::string::npos)
      return entry.refuse(*entry.find("value"), "value", "a control character is in it");
    into[*name] = std::move(*value);
  }
  return {};
}

Result<ExecConfig> read_exec(const Part& exec) {
  if (auto known = exec.check_keys(
          {"apiVersion", "command", "args", "env", "installHint", "provideClusterInfo", "interactiveMode"});
      !known)
    return fail(std::move(known).error());
  ExecConfig out;
  out.place = fmt::format("{}: {}", exec.file->reader.place(*exec.at), exec.path);
  if (auto read = store(exec.word("command"), out.command); !read) return fail(std::move(read).error());
  if (out.command.empty()) return exec.refuse(*exec.at, "command", "the key is missing");
  if (out.command.find('/') != std::string::npos)
    out.program = std::filesystem::path(exec.file->source->file).parent_path() / out.command;

  constexpr std::array<std::string_view, 2> kVersions = {"client.authentication.k8s.io/v1",
                                                         "client.authentication.k8s.io/v1beta1"};
  if (auto read = store(exec.word("apiVersion"), out.api_version); !read)
    return fail(std::move(read).error());
  const std::string hint =
      fmt::format("write {} or {}, as the program prints it", kVersions[0], kVersions[1]);
  if (out.api_version.empty()) return exec.refuse(*exec.at, "apiVersion", "the key is missing", hint);
  if (std::ranges::find(kVersions, out.api_version) == kVersions.end())
    return exec.refuse(*exec.find("apiVersion"), "apiVersion",
                       fmt::format("neither kubectl nor Ferry knows '{}'", shortened(out.api_version)), hint);

  if (auto read = store(exec.words("args"), out.arguments); !read) return fail(std::move(read).error());
  if (auto read = read_exec_variables(exec, out.variables); !read) return fail(std::move(read).error());
  if (auto read = store(exec.text("installHint"), out.install_hint); !read)
    return fail(std::move(read).error());
  if (auto read = store(read_interactive_mode(exec, out.api_version == kVersions[1]), out.interactive); !read)
    return fail(std::move(read).error());
  const auto informed = exec.flag("provideClusterInfo");
  if (!informed) return fail(informed.error());
  if (*informed) out.cluster = "{}";  // filled by access_from_kubeconfig()
  return out;
}

// A key of as-user-extra as a part of a header's name.
// ABI: k8s.io/client-go/transport, headerKeyEscape.
std::string header_key(std::string_view key) {
  std::string out;
  for (const char c : key) {
    const bool plain =
        is_alphanumeric(c) || std::string_view("!#$&'*+-.^_`|~").find(c) != std::string_view::npos;
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

/// Headers of one name. A blank value would be no header.
Result<> add_headers(const Part& part, const std::string& key, const std::string& header,
                     std::vector<std::string>& into) {
  const auto values = part.words(key);
  if (!values) return fail(values.error());
  for (const std::string& value : *values) {
    const bool is_blank = value.find_first_not_of(' ') == std::string::npos;
    if (is_blank || std::ranges::any_of(value, Part::is_control))
      return part.refuse(*part.find(key), key,
                         is_blank ? "an empty name is in it" : "a control character is in it");
    into.push_back(fmt::format("{}: {}", header, value));
  }
  return {};
}

/// The headers by which the server lets our user act as another one.
/// ABI: Kubernetes, "User impersonation".
Result<std::vector<std::string>> read_impersonation(const Part& user) {
  std::vector<std::string> out;
  const auto name = user.word("as");
  if (!name) return fail(name.error());
  if (name->empty()) {
    for (const char* key : {"as-uid", "as-groups", "as-user-extra"})
      if (const ConfigNode* node = user.find(key); node != nullptr)
        return user.refuse(*node, key, "only a user named by `as` can have it", "add `as`, or remove it");
    return out;
  }
  // A blank header is not sent, and the request would be made as the user's own account.
  if (name->find_first_not_of(' ') == std::string::npos)
    return user.refuse(*user.find("as"), "as", "an empty name is in it");
  out.push_back("Impersonate-User: " + *name);
  const auto uid = user.word("as-uid");
  if (!uid) return fail(uid.error());
  if (!uid->empty()) out.push_back("Impersonate-Uid: " + *uid);
  if (auto added = add_headers(user, "as-groups", "Impersonate-Group", out); !added)
    return fail(std::move(added).error());
  const ConfigNode* extra = user.find("as-user-extra");
  if (extra == nullptr) return out;
  if (extra->kind != Kind::map)
    return user.refuse(*extra, "as-user-extra", "expected a map, found " + Part::sort_of(*extra));
  const Part part{.file = user.file, .at = extra, .path = user.key("as-user-extra")};
  for (const ConfigMember& member : extra->members) {
    if (member.key.text.empty()) return user.refuse(member.key, "as-user-extra", "a key in it is empty");
    if (auto added =
            add_headers(part, member.key.text, "Impersonate-Extra-" + header_key(member.key.text), out);
        !added)
      return fail(std::move(added).error());
  }
  return out;
}

Result<> read_token(const Part& user, ClusterAccess& into) {
  const auto token = user.text("token");
  if (!token) return fail(token.error());
  auto file = user.path_at("tokenFile");
  if (!file) return fail(std::move(file).error());
  if (!token->empty() && !file->empty() && user.file->whose == AccessFor::service)
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

Result<> read_user(const Part& user, ClusterAccess& into) {
  for (const Refused& refused : kRefused) {
    const ConfigNode* node = user.find(refused.key);
    if (node != nullptr && (user.file->whose == AccessFor::service || refused.for_persons))
      return user.refuse(*node, refused.key, refused.why, refused.hint);
  }
  if (auto known = user.check_keys({"client-certificate", "client-certificate-data", "client-key",
                                    "client-key-data", "token", "tokenFile", "username", "password", "exec",
                                    "as", "as-uid", "as-groups", "as-user-extra", "extensions"});
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
  if (auto read = read_token(user, into); !read) return read;
  if (auto read = store(read_impersonation(user), into.impersonation); !read) return read;

  const ConfigNode* node = user.find("exec");
  if (node == nullptr) return {};
  auto exec = read_exec({.file = user.file, .at = node, .path = user.key("exec")});
  if (!exec) return fail(std::move(exec).error());
  // kubectl does not run the program for a user with other credentials.
  const bool has_others =
      !into.token.empty() || !into.certificate.empty() || !into.username.empty() || !into.password.empty();
  if (!has_others) into.exec = std::move(*exec);
  return {};
}

}  // namespace

Result<ClusterAccess> access_from_kubeconfig(const std::vector<ConfigText>& sources,
                                             const std::string& context, const Environment& environment,
                                             AccessFor reader) {
  std::vector<File> files;
  for (const ConfigText& source : sources) {
    auto file = read_file(source, reader);
    if (!file) return fail(std::move(file).error());
    files.push_back(std::move(*file));
  }
  Part by{.file = &files.front(), .at = &files.front().root, .path = {}};
  const ConfigNode* asked = nullptr;
  std::string name = context;
  for (const File& file : files) {
    if (!name.empty()) break;
    const Part top{.file = &file, .at = &file.root, .path = {}};
    const auto current = top.text("current-context");
    if (!current) return fail(current.error());
    if (current->empty()) continue;
    name = *current;
    asked = top.find("current-context");
    by = {.file = &file, .at = asked, .path = "current-context"};
  }
  if (name.empty())
    return fail(Errc::invalid_config,
                sources.front().file + ": no context is chosen: there is no current-context",
                "choose one of its contexts");
  auto chosen = entry_of(files, "contexts", "context", name, by, asked);
  if (!chosen) return fail(std::move(chosen).error());
  if (auto known = chosen->check_keys({"cluster", "user", "namespace", "extensions"}); !known)
    return fail(std::move(known).error());

  ClusterAccess out;
  const auto cluster_name = chosen->text("cluster");
  if (!cluster_name) return fail(cluster_name.error());
  if (cluster_name->empty()) return chosen->refuse(*chosen->at, "cluster", "the key is missing");
  const auto cluster =
      entry_of(files, "clusters", "cluster", *cluster_name, *chosen, chosen->find("cluster"));
  if (!cluster) return fail(cluster.error());
  if (auto read = read_cluster(*cluster, environment, out); !read) return fail(std::move(read).error());

  out.said_by = fmt::format("context '{}' of {}", name, chosen->file->source->file);
  if (cluster->file != chosen->file)
    out.said_by += fmt::format(", whose cluster '{}' is in {}", *cluster_name, cluster->file->source->file);

  const auto user_name = chosen->text("user");
  if (!user_name) return fail(user_name.error());
  if (!user_name->empty()) {
    const auto user = entry_of(files, "users", "user", *user_name, *chosen, chosen->find("user"));
    if (!user) return fail(user.error());
    if (auto read = read_user(*user, out); !read) return fail(std::move(read).error());
    if (out.exec && !out.exec->cluster.empty())
      out.exec->cluster = exec_cluster(*cluster, out).dump(-1, ' ', false, json::error_handler_t::replace);
  }
  if (auto read = store(chosen->text("namespace"), out.default_namespace); !read)
    return fail(std::move(read).error());
  return out;
}

}  // namespace ferry::kube
