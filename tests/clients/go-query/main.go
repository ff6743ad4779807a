// Reads one query per line, and prints how Vault or OpenBao treats a GET with it: read, list or scan; or that it is
// refused because a reader could take it for something else. Only Go's own parser decides.
package main

import (
	"bufio"
	"fmt"
	"net/url"
	"os"
	"strconv"
)

func operation(raw string) string {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return "refused"
	}
	asked := map[string]bool{}
	for _, name := range []string{"list", "scan"} {
		if len(values[name]) > 1 {
			return "refused"
		}
		if text := values.Get(name); text != "" {
			wanted, err := strconv.ParseBool(text)
			if err != nil {
				return "refused"
			}
			asked[name] = wanted
		}
	}
	switch {
	case asked["list"] && asked["scan"]:
		return "refused"
	case asked["list"]:
		return "list"
	case asked["scan"]:
		return "scan"
	}
	return "read"
}

func main() {
	in, out := bufio.NewScanner(os.Stdin), bufio.NewWriter(os.Stdout)
	for in.Scan() {
		fmt.Fprintln(out, operation(in.Text()))
	}
	if err := in.Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := out.Flush(); err != nil {
		os.Exit(1)
	}
}
