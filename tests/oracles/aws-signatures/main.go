// Signs requests for the caller's identity with AWS's SDK, for the cases of the fixture at the argument, and prints it again.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

const body = "Action=GetCallerIdentity&Version=2011-06-15"

type signedCase struct {
	AccessKeyID     string `json:"access_key_id"`
	SecretAccessKey string `json:"secret_access_key"`
	SessionToken    string `json:"session_token"`
	// Seconds since 1970.
	Time int64 `json:"time"`
	// Empty for the global endpoint.
	Region   string `json:"region"`
	ServerID string `json:"server_id"`

	URL     string              `json:"url"`
	Headers map[string][]string `json:"headers"`
}

func sign(c *signedCase) error {
	region := c.Region
	c.URL = "https://sts.amazonaws.com/"
	switch {
	case region == "":
		region = "us-east-1"
	case strings.HasPrefix(region, "cn-"):
		c.URL = "https://sts." + region + ".amazonaws.com.cn/"
	default:
		c.URL = "https://sts." + region + ".amazonaws.com/"
	}
	request, err := http.NewRequest(http.MethodPost, c.URL, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
	request.Header.Set("Content-Length", fmt.Sprint(len(body)))
	if c.ServerID != "" {
		request.Header.Set("X-Vault-AWS-IAM-Server-ID", c.ServerID)
	}
	hash := sha256.Sum256([]byte(body))
	credentials := aws.Credentials{
		AccessKeyID: c.AccessKeyID, SecretAccessKey: c.SecretAccessKey, SessionToken: c.SessionToken,
	}
	now := time.Unix(c.Time, 0).UTC()
	err = v4.NewSigner().SignHTTP(context.Background(), credentials, request, hex.EncodeToString(hash[:]), "sts", region, now)
	c.Headers = request.Header
	return err
}

func main() {
	text, err := os.ReadFile(os.Args[1])
	var cases []*signedCase
	if err == nil {
		err = json.Unmarshal(text, &cases)
	}
	for _, c := range cases {
		if err == nil {
			err = sign(c)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(cases); err != nil {
		os.Exit(1)
	}
}
