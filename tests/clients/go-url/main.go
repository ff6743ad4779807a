// Reads a method and a request target per line, and prints how Go's HTTP server parses them: the method, the path, the path as its
// router cleans it, the raw query, and the names and values of the query, all in hexadecimal. A line or a query that Go refuses is
// "error". Only Go's own parsers decide. It answers at once, so that another process may ask line by line.
package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"sort"
	"strings"
)

func read(start string) string {
	head := start + " HTTP/1.1\r\nHost: localhost\r\n\r\n"
	request, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head)))
	if err != nil {
		return "error"
	}
	there := request.URL.Path
	line := fmt.Sprintf("%x %x %x %x ", request.Method, there, path.Clean(there), request.URL.RawQuery)
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
	in, out := bufio.NewReader(os.Stdin), bufio.NewWriter(os.Stdout)
	for {
		line, err := in.ReadString('\n')
		if err == io.EOF {
			err = out.Flush()
			if err == nil {
				return
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Fprintln(out, read(strings.TrimSuffix(line, "\n")))
		if in.Buffered() == 0 && out.Flush() != nil {
			os.Exit(1)
		}
	}
}
