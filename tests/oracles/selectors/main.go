// Evaluates generated selectors of binding rules with go-bexpr, in the version and on the fields that Consul uses, and prints
// the fixture: the logins in the first line, and a selector with its results in each other.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"strings"

	"github.com/hashicorp/go-bexpr"
)

// Fields that Consul's JWT auth method offers to selectors.
type fields struct {
	Values map[string]string   `bexpr:"value"`
	Lists  map[string][]string `bexpr:"list"`
}

// Claims of one login. A claim that the token lacks is not in the map.
type claims struct {
	Values map[string]string   `json:"values"`
	Lists  map[string][]string `json:"lists"`
}

var logins = []claims{
	{map[string]string{"name": "web-1", "team": "shop", "env": ""}, map[string][]string{"groups": {"ops", "dev team"}, "empty": {}}},
	{map[string]string{"name": "shop", "team": "web-1", "env": "prod"}, map[string][]string{"groups": {"shop"}, "empty": {"x"}}},
	{map[string]string{"name": "Ünï x", "team": "a.b c", "env": "5"}, map[string][]string{"groups": {"name", "not", "in"}, "empty": {}}},
	{map[string]string{"name": "web-1"}, map[string][]string{"groups": {"ops"}}},
	{map[string]string{"team": "shop"}, map[string][]string{"empty": {"value"}}},
	{map[string]string{"name": "line\nbreak", "team": "tab\tand\\", "env": "\"quoted\""}, map[string][]string{"groups": {"-5", "0.5", "true"}}},
	{map[string]string{}, map[string][]string{}},
}

// A selector, and one letter for each login: match, no match, or error of the evaluation. "refused" if go-bexpr refuses it.
type result [2]string

func evaluate(selector string) result {
	evaluator, err := bexpr.CreateEvaluatorForType(selector, nil, &fields{})
	if err != nil {
		return result{selector, "refused"}
	}
	letters := ""
	for _, login := range logins {
		matches, err := evaluator.Evaluate(&fields{login.Values, login.Lists})
		switch {
		case err != nil:
			letters += "e"
		case matches:
			letters += "m"
		default:
			letters += "-"
		}
	}
	return result{selector, letters}
}

var values = []string{
	"web-1", "shop", "web", "\"web-1\"", "`web-1`", "\"\"", "``", "5", "-5", "0.5", "05", "5.", "a.b", "a[\"b c\"]", "a.b[ `c` ]",
	"name", "not", "in", "and", "\"dev team\"", "ops", "\"ops\"", "x", "true", "\"line\\nbreak\"", "`line\\nbreak`", "\"line\nbreak\"",
	"`line\nbreak`", "\"tab\\tand\\\\\"", "\"\\\"quoted\\\"\"", "`\"quoted\"`", "\"\\u00dcn\\xc3\\xaf x\"", "\"\\xc3\"", "\"\\377\"", "\"\\400\"",
	"\"\\U0001F600\"", "\"\\ud800\"", "\"\\q\"", "\"\\'\"", "'x'", "\"\\a\\b\\f\\v\\r\"", "Ünï", "\"Ünï\"", "`a\r\nb`", "web.", "é", "_x", "x_1",
}

var patterns = []string{
	"\"^web\"", "`^web-[0-9]$`", "\".*\"", "\"^$\"", "``", "shop", "`(`", "`(?i)WEB`", "`(?i)ÜN`", "`\\d`", "`\\w+`", "`^\\w+$`", "`\\bx\\b`", "`^(?s).+$`",
	"`^.+$`", "`(?m)^b`", "`\\pL`", "`\\p{Greek}`", "`[[:alpha:]]`", "`\\Qweb-1\\E`", "`\\x{57}`", "`a{1000}`", "`a{1001}`", "`(?P<x>w)`", "`x*+`", "`(?U)w+`",
	"`\\z`", "`\\A.`", "`[^a-z]`", "`\\C`", "`(?=x)`", "`\\1`", "\"\\xff\"", "`a|`", "`\\S\\s\\S`", "`[]a]`", "`\\é`", "`(?i)ſ`",
}

var paths = []string{
	"value.name", "value.team", "value.env", "list.groups", "list.empty", "value[\"name\"]", "value[ `team` ]", "list[\"groups\"]", "value", "list",
	"value.other", "list.other", "value.groups", "list.name", "value.name.x", "list.groups.x", "name", "other.x", "value[\"\"]", "Value.name", "value.Name",
}

var short = []string{
	"value.name == \"web-1\"", "value.team != shop", "ops in list.groups", "name in value", "value.env == \"\"", "value.name matches `^web`", "list.empty is empty",
}

func selectors() []string {
	all := []string{"", " ", "value", "value.name", "x", "()", "(", ")", "not", "\"x\"", "and", "5"}
	add := func(parts ...string) { all = append(all, strings.Join(parts, "")) }
	for _, path := range paths {
		for index, value := range values {
			add(path, " == ", value)
			add(value, " in ", path)
			if index < 24 {
				add(path, " != ", value)
				add(value, " not in ", path)
				add(path, " contains ", value)
				add(path, " not contains ", value)
			}
		}
		for _, rest := range []string{" is empty", " is not empty", " is  not\tempty", " is full", " isempty", " empty", "==x", "!=x", "= x", " =="} {
			add(path, rest)
		}
	}
	for _, path := range []string{"value.name", "value.team", "value.env", "list.groups", "value"} {
		for _, pattern := range patterns {
			add(path, " matches ", pattern)
			add("not ", path, " matches ", pattern)
			add(path, " not matches ", pattern)
		}
	}
	for _, left := range short {
		for _, form := range []string{"not %s", "not not %s", "not not not %s", "(%s)", " ( ( %s ) ) ", "not (%s)", "not(%s)", "(not %s)", "(%s", "%s)", "((%s)", "%s and", "or %s"} {
			add(fmt.Sprintf(form, left))
		}
		for _, right := range short {
			for _, form := range []string{"%s and %s", "%s or %s", "not %s and %s", "not (%s and %s)", "(%s) or not (%s)", "(%s)and(%s)", "(%s)or (%s)", "%s  and\n%s", "%s xor %s", "%s %s", "%s and or %s", "%s AND %s"} {
				add(fmt.Sprintf(form, left, right))
			}
			for _, third := range short[:3] {
				add(left, " or ", right, " and ", third)
				add(left, " and (", right, " or ", third, ")")
				add(left, " and not ", right, " or not ", third)
			}
		}
	}
	// Words of the language as values and names.
	words := []string{"not", "in", "and", "or", "is", "empty", "contains", "matches", "value", "list"}
	for _, first := range words {
		for _, second := range words {
			add(first, " in ", second)
			add("not ", first, " in ", second)
			add(first, " not in ", second, ".groups")
			add("value.name == ", first, " ", second, " x in list.groups")
		}
	}
	add(strings.Repeat("not ", 20), short[0])
	add("value.name == `", strings.Repeat("x", 600), "`")
	return append(all, changed(all)...)
}

// Selectors with a few pieces taken out, doubled, or put in, always the same ones.
func changed(all []string) []string {
	random := rand.New(rand.NewSource(1))
	pieces := []string{" ", "(", ")", "not ", " and ", " or ", "\"", "`", ".", "[", "]", "=", "!", " in ", "value", "\\", "x", "5", "\t", "-"}
	seeds := []string{}
	for _, selector := range all {
		if len(selector) < 120 {
			seeds = append(seeds, selector)
		}
	}
	made := []string{}
	for len(made) < 2500 {
		text := seeds[random.Intn(len(seeds))]
		for times := 1 + random.Intn(2); times > 0; times-- {
			at := random.Intn(len(text) + 1)
			end := at + random.Intn(len(text)-at+1)
			if end > at+4 {
				end = at + 4
			}
			switch random.Intn(3) {
			case 0:
				text = text[:at] + text[end:]
			case 1:
				text = text[:end] + text[at:]
			default:
				text = text[:at] + pieces[random.Intn(len(pieces))] + text[at:]
			}
		}
		// A fixture is a text.
		if strings.ToValidUTF8(text, "") == text {
			made = append(made, text)
		}
	}
	return made
}

func main() {
	out := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	check := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	check(encoder.Encode(logins))
	known := map[string]bool{}
	for _, selector := range selectors() {
		if !known[selector] {
			known[selector] = true
			check(encoder.Encode(evaluate(selector)))
		}
	}
	check(out.Flush())
}
