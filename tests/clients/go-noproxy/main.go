// Prints which proxy golang.org/x/net/http/httpproxy selects, for generated values of the environment variables and URLs, as JSON:
// tests/it/fixtures/no_proxy.json. That package decides for Go's HTTP client, and so for Vault, Consul and Terraform.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/url"
	"os"

	"golang.org/x/net/http/httpproxy"
)

// Direct connections by a value of NO_PROXY: a digit for each target, 1 if it is called without a proxy.
type exclusion struct {
	NoProxy string `json:"no_proxy"`
	Direct  string `json:"direct"`
}

// Proxy of a URL by the other variables.
type selection struct {
	HTTP  string `json:"http_proxy"`
	HTTPS string `json:"https_proxy"`
	CGI   bool   `json:"cgi"`
	URL   string `json:"url"`
	// Host and port of the proxy; nothing for a direct connection, "refused" for an error.
	Proxy string `json:"proxy"`
}

var entries = []string{
	"", "*", " * ", "**", "corp.internal", ".corp.internal", "*.corp.internal", "*corp.internal", "*.*.corp.internal",
	"CORP.Internal", "vault.corp.internal", "vault.corp.internal:8200", "vault.corp.internal:443", "vault.corp.internal:",
	".corp.internal:8200", "*.corp.internal:8200", "corp.internal:443", "internal", ".internal", ".", "..", ":", ":8200",
	"corp.internal.", "https://vault.corp.internal", "vault.corp.internal/v1", "vault.corp.internal:https",
	"10.1.2.3", "10.1.2.3:8200", "10.1.2.3:443", "10.1.2.0/24", "10.0.0.0/8", "10.1.2.3/32", "10.1.2.3/0", "10.1.2.0/33",
	"10.1.2.0/024", "10.1.2.0/+24", "10.1.2.0/-1", "10.1.2.0/", "010.1.2.3", "10.1.2", "10.1.2.*", "10.", "0.0.0.0/0",
	"2001:db8::1", "[2001:db8::1]", "[2001:db8::1]:8200", "[2001:db8::1]:443", "2001:db8::/32", "[2001:db8::]/32", "::/0",
	"2001:DB8:0:0::1", "::ffff:10.1.2.3", "::ffff:10.1.2.0/120", "::ffff:0:0/96", "::ffff:10.1.2.0/95", "2001:db8::1/129",
	"[2001:db8::1", "2001:db8::1]:8200", "[2001:db8::1]8200", "[]:8200", "fe80::1%eth0",
	"localhost", "127.0.0.1", "::1", "bücher.example", ".bücher.example", "xn--bcher-kva.example", "*.bücher.example:8200",
	"vault.corp.internal 10.1.2.3", "vault.corp.internal|10.1.2.3", "other.example,,  .corp.internal ,10.0.0.0/8,",
	"other.example;corp.internal", "10.1.2.3,*,other.example", "corp.internal:8200,corp.internal:443",
	"xcorp.internal", "-", "_", "vault_1.corp.internal", "a.vault.corp.internal", "login.microsoftonline.com",
	".microsoftonline.com", "*.vault.azure.net,169.254.169.254",
}

var targets = []string{
	"https://corp.internal", "https://vault.corp.internal", "https://vault.corp.internal:8200", "http://vault.corp.internal",
	"http://vault.corp.internal:8200", "https://a.vault.corp.internal", "https://VAULT.corp.internal:443",
	"https://xcorp.internal", "https://corp.internal.example", "https://vault.corp.internal.", "https://vault_1.corp.internal",
	"https://other.example", "https://10.1.2.3", "https://10.1.2.3:8200", "https://10.1.2.4", "https://10.1.3.3",
	"http://11.1.2.3:8200", "https://[2001:db8::1]", "https://[2001:db8::1]:8200", "https://[2001:db8:1::1]", "https://[2001:db9::1]",
	"https://[::ffff:10.1.2.3]", "https://127.0.0.1:8200", "https://127.9.9.9", "http://localhost:8200", "https://[::1]:8200",
	"https://localhost.", "https://xn--bcher-kva.example", "https://www.xn--bcher-kva.example:8200",
	"https://login.microsoftonline.com/tenant/oauth2/v2.0/token", "http://169.254.169.254/metadata", "https://x.vault.azure.net",
	"https://0.0.0.0", "https://internal",
}

var proxies = []string{
	"", "http://proxy.example:3128", "https://secure.example", "proxy.example:3128", "plain.example", "http://user:pass@proxy.example:3129",
	"user:pass@proxy.example:3130", "10.9.9.9:3128", "[2001:db8::9]:3128", "http://[2001:db8::9]:3129/path",
}

func main() {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	fmt.Fprintf(out, "{\"targets\": %s,\n\"exclusions\": [", encode(targets))
	for number, entry := range entries {
		config := httpproxy.Config{HTTPProxy: "http://proxy.example:3128", HTTPSProxy: "http://proxy.example:3128", NoProxy: entry}
		found := exclusion{NoProxy: entry}
		for _, target := range targets {
			if proxy(config, target) == "" {
				found.Direct += "1"
			} else {
				found.Direct += "0"
			}
		}
		fmt.Fprint(out, separator(number), encode(found))
	}
	fmt.Fprint(out, "],\n\"selections\": [")
	number := 0
	for _, plain := range proxies {
		for _, tls := range proxies {
			for _, cgi := range []bool{false, true} {
				for _, target := range []string{"http://vault.example:8200", "https://vault.example:8200"} {
					config := httpproxy.Config{HTTPProxy: plain, HTTPSProxy: tls, CGI: cgi}
					found := selection{plain, tls, cgi, target, proxy(config, target)}
					fmt.Fprint(out, separator(number), encode(found))
					number++
				}
			}
		}
	}
	fmt.Fprint(out, "]}\n")
}

func separator(number int) string {
	if number == 0 {
		return "\n"
	}
	return ",\n"
}

func encode(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func proxy(config httpproxy.Config, target string) string {
	parsed, err := url.Parse(target)
	if err != nil {
		panic(err)
	}
	found, err := config.ProxyFunc()(parsed)
	if err != nil {
		return "refused"
	}
	if found == nil {
		return ""
	}
	return found.Host
}
