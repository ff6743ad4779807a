// Reads one request target per line, and prints how Go's HTTP server parses it: the path, the path as its router cleans it, the
// raw query, and the names and values of the query, all in hexadecimal. A target or a query that Go refuses is "error". Only Go's
// own parsers decide.
package main

import (
	"bufio"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path"
	"sort"
	"strings"
)

func read(target string) string {
	head := "GET " + target + " HTTP/1.1\r\nHost: localhost\r\n\r\n"
	request, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head)))
	if err != nil {
		return "error"
	}
	there := request.URL.Path
	line := fmt.Sprintf("%x %x %x ", there, path.Clean(there), request.URL.RawQuery)
	values, err := url.ParseQuery(request.URL.RawQuery)
	if err != nil {
		return line + "error"
	}
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	sort.Strings(names)
	pairs := []string{}
	for _, name := range names {
		for _, value := range values[name] {
			pairs = append(pairs, fmt.Sprintf("%x=%x", name, value))
		}
	}
	return line + strings.Join(pairs, "&")
}

func main() {
	in, out := bufio.NewScanner(os.Stdin), bufio.NewWriter(os.Stdout)
	for in.Scan() {
		fmt.Fprintln(out, read(in.Text()))
	}
	if err := in.Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := out.Flush(); err != nil {
		os.Exit(1)
	}
}
