// Uses what it does not include.
const std::string kName;  // fault 5
