vault {
  address  = "https://secrets.example.com:8200"
  adress   = "https://other.example.com:8200"
}

auto_auth {
  method "azure" {
    config = {
      role     = "web"
      resource = "https://management.azure.com/"
      colour   = "green"
    }
  }
  sink "s3" {
    config = {
      bucket = "tokens"
    }
  }
}

wallpaper "green" {
  size = 2
}
